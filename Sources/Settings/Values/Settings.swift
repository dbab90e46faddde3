package import Audit
package import Cryptography
import FoundationEssentials
package import HTTP
package import JWT
package import Logging
package import TokenService
package import TokenStore

/// The value of every setting; a new value has the defaults.
///
/// `Setting.all` gives each of them its key and says what it is for. Comments here only add the unit, and what nil or an empty
/// value means.
package struct Settings: Sendable {
    package var listen: [ListenAddress] = [.default]
    package var admin = Admin()
    package var dataDirectory = "./data"
    package var sealing = Sealing()
    package var store = Store()
    var retention = Retention()
    /// In bytes.
    package var cacheLimit = 64 << 20
    package var paths = ["/token", "/token.php"]
    package var readsJSON = false
    package var access = Access()
    package var refresh = RefreshSettings()
    package var https = HTTPS()
    package var tls = TLS()
    package var trustedProxies = [TrustedProxy("127.0.0.0/8"), TrustedProxy("::1"), .unixSockets].compactMap(\.self)
    package var logLevel = Logger.Level.info
    package var logFormat = LogFormat.text
    package var accessLog = AccessLog()
    package var audit = Audit()
    package var drainTimeout = Duration.seconds(10)
    package var drainDelay = Duration.zero
    /// Those of one request; the other limits follow.
    package var limits = RequestLimits()
    package var connectionLimit = 10_000
    /// In bytes.
    package var bufferLimit = 256 << 20
    package var timeouts = Timeouts()
    /// Warnings about settings of earlier versions, which are no settings any more.
    package var warnings: [String] = []

    package init() {}

    /// The access log's format: `log_format: json` makes all lines JSON.
    package var accessLogFormat: AccessLogFormat {
        logFormat == .json && accessLog.isOn ? .json : accessLog.format
    }

    /// The listeners for monitoring and administration.
    package struct Admin: Sendable {
        /// Plain HTTP over TCP; if empty, only the control socket is there.
        package var listen = [ListenAddress(place: .tcp(host: "127.0.0.1", port: 9090))]
        /// Names with a dot that requests may have as their host.
        package var hosts: [String] { listen.flatMap(\.hosts) }
    }

    /// The keys that stored tokens are encrypted with.
    package struct Sealing: Sendable {
        /// The path of the key ring; if empty, systemd's credential or a file in the data folder is the key ring.
        package var keyRing = ""
    }

    /// Where tokens are stored, the limits of the store, and how it starts.
    package struct Store: Sendable {
        /// The URL of a PostgreSQL database, as `StoreURL` reads it; empty for SQLite in the data folder.
        package var url = ""
        package var connections = 2
        /// Nil for what suits the kind of store.
        package var timeout: Duration?
        /// Nil for what suits the number of hosts.
        package var durability: StoreDurability?
        /// In bytes; nil for no limit.
        package var byteLimit: Int?
        /// Whether a WAL with a damaged end is used, which loses acknowledged tokens; only a flag of `serve` sets it.
        package var acceptsDamagedWAL = false
        /// The systemd credential with the database's password.
        package static let passwordCredential = "token-cache.postgresql-password"
    }

    /// Which requests are answered rather than redirected, and what answers say about https.
    package struct HTTPS: Sendable {
        package var mode = HTTPSPolicy.Mode.strict
        /// The host of redirects to https; if empty, the request's own.
        package var publicHost = ""
    }

    /// The files of `https://` listeners, in PEM.
    package struct TLS: Sendable {
        /// Paths of certificates with their intermediate ones; the first one is for clients that ask for an unknown name.
        package var certificates: [String] = []
        /// Paths of the certificates' keys, in the same order.
        package var privateKeys: [String] = []
        /// The path of the authorities that must have issued clients' certificates; if empty, clients need none.
        package var clientAuthorities = ""
    }

    /// How long the server waits for a client.
    package struct Timeouts: Sendable {
        package var body = Duration.seconds(30)
        package var idle = Duration.seconds(75)

        /// For a head or a TLS handshake.
        package var head: Duration { body / 3 }
    }
}

extension Settings {
    /// The absolute path of the data folder, so that messages name it whatever folder the program was started in.
    package var dataDirectoryPath: String { URL(filePath: dataDirectory).standardizedFileURL.path }

    /// The path of the audit log's running key.
    package var auditKeyPath: String {
        audit.keyFile.isEmpty ? dataDirectoryPath + "/" + RunningKey.standardName : audit.keyFile
    }

    /// How long a request waits for the store: for one write of the disk, or for the database.
    package var storeTimeout: Duration { store.timeout ?? .seconds(store.url.isEmpty ? 10 : 5) }

    /// The database of `store.url`; nil for SQLite.
    package var storeURL: StoreURL? { store.url.isEmpty ? nil : try? StoreURL(store.url) }
}

extension Settings {
    /// Who may read and write which token.
    package struct Access: Sendable {
        package var mode = AccessMode.open
        package var session = Session()
        /// The path of the API keys; if empty, there is no API for an app's server.
        package var apiKeysFile = ""
        package var bearer = Bearer()
        /// The header of mode `header`, in any case; empty if none is set.
        package var headerName = ""
        package var certificateName = ClientCertificate.NameKind.sanURI
        /// Nil without a limit.
        package var failures: FailureRate?
        /// The path of Facebook's app secret; if empty, Facebook's messages are not read.
        package var facebookSecretFile = ""
    }

    /// The sessions of users.
    package struct Session: Sendable {
        package var maxAge = Duration.seconds(90 * 86_400)
        package var idleTimeout = Duration.seconds(30 * 86_400)
        /// How many a user may have; one more ends the oldest.
        package static let perUser = 100
    }

    /// Which JWTs are accepted in mode `bearer`.
    package struct Bearer: Sendable {
        /// Without an issuer and audiences if none are set.
        package var rules = JWTRules()
        /// The path of the issuer's public keys, a JWKS; empty if none is set.
        package var keysFile = ""
        package var isReadInUniqueID = false
    }
}

extension Settings {
    /// How long the store keeps tokens and unused sessions.
    package var storeRetention: Retention {
        var retention = retention
        retention.sessionIdleTimeout = access.session.idleTimeout
        return retention
    }
}

extension Settings {
    /// The access log.
    package struct AccessLog: Sendable {
        var format = AccessLogFormat.off
        /// The path; empty for standard output.
        package var file = ""

        package var isOn: Bool { format != .off }
    }

    /// The audit log.
    package struct Audit: Sendable {
        /// The path of the log; empty for none.
        package var file = ""
        /// The path of the running key; if empty, a file in the data folder.
        package var keyFile = ""
        package var events = AuditEvents.changes
        package var isRequired = true
    }
}

/// The format of the server's log.
package enum LogFormat: String, Sendable, CaseIterable {
    /// Text for people; the access log has the format of `access_log`.
    case text
    /// One JSON object per line, in the access log as well.
    case json
}

/// The format of the access log.
package enum AccessLogFormat: String, Sendable, CaseIterable {
    case off
    /// The format `combined` of Apache and nginx, with the microseconds at the end.
    case combined
    /// One JSON object per line.
    case json
}
