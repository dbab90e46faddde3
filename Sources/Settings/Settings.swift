package import HTTP
package import Logging
package import TokenService
package import TokenStore

/// Everything that can be set, each with its default.
///
/// Immutable once the server has started.
package struct Settings: Sendable {
    package var listen: [ListenAddress] = [.default]
    package var admin = Admin()
    package var dataDirectory = "./data"
    package var sealing = Sealing()
    package var store = Store()
    package var retention = Retention()
    /// Bytes of memory for answers to ids that were asked for lately.
    package var cacheLimit = 64 << 20
    /// Nil means one for each usable core.
    package var loops: Int?
    package var paths = ["/token", "/token.php"]
    package var readsJSON = false
    package var https = HTTPS()
    package var tls = TLS()
    /// Whose forwarded headers and PROXY headers are believed.
    package var trustedProxies = [TrustedProxy("127.0.0.0/8"), TrustedProxy("::1"), .unixSockets].compactMap(\.self)
    package var logLevel = Logger.Level.info
    package var logFormat = LogFormat.text
    package var accessLog = AccessLogFormat.off
    /// The access log's path; empty for standard output.
    package var accessLogFile = ""
    /// Whether each request has an id, in the logs and in its answer.
    package var hasRequestIDs = true
    /// How long a stop waits for requests under way.
    package var drainTimeout = Duration.seconds(10)
    package var limits = RequestLimits()
    package var connectionLimit = 10_000
    /// Bytes that may wait in buffers for clients that are slow to send or to take them.
    package var heldLimit = 256 << 20
    package var timeouts = Timeouts()

    package init() {}

    /// The access log's format: `log_format: json` makes all lines JSON.
    package var accessLogFormat: AccessLogFormat {
        logFormat == .json && accessLog != .off ? .json : accessLog
    }

    /// Where those who run the server reach it.
    package struct Admin: Sendable {
        /// Plain HTTP over TCP; empty for nowhere but the control socket.
        package var listen = [ListenAddress(place: .tcp(host: "127.0.0.1", port: 9090))]
        /// Names under which it is asked for there, beside `localhost`.
        package var hosts: [String] = []
    }

    /// Whether and with which keys tokens are encrypted on the disk.
    package struct Sealing: Sendable {
        package var isEnabled = true
        /// The path of the key ring's file; empty for systemd's credential, or otherwise for a file in the data directory.
        package var keyRing = ""
    }

    /// How much the store may hold; nil for no limit.
    package struct Store: Sendable {
        package var tokenLimit: Int?
        package var byteLimit: Int?
        /// Whether a log with a damaged end is used, which loses what was acknowledged.
        package var acceptsDamagedLog = false
        /// Whether a start has the system take the database into its memory.
        package var isPreloaded = true
        /// Bytes of tokens that may wait to be written.
        package var queueLimit = 128 << 20
        /// How long the disk may take for one write before others fail.
        package var queueTime = Duration.seconds(10)
    }

    /// What is asked of the way that requests come.
    package struct HTTPS: Sendable {
        package var mode = HTTPSPolicy.Mode.strict
        /// The host of redirects to https; empty for the request's own.
        package var publicHost = ""
        /// How long browsers are told to use https only; zero tells them nothing.
        package var transportSecurityAge = Duration.seconds(365 * 86_400)
    }

    /// The files of `https://` listeners, in PEM.
    package struct TLS: Sendable {
        /// Certificates with their intermediate ones; the first is for clients that ask for no name that is known.
        package var certificates: [String] = []
        /// The certificates' keys, in the same order.
        package var privateKeys: [String] = []
        /// The authorities that clients' certificates have to come from; empty asks for none.
        package var clientAuthorities = ""
    }

    /// How long the server waits for a client.
    package struct Timeouts: Sendable {
        /// From a request's first byte to the end of its head.
        package var head = Duration.seconds(10)
        /// From the end of the head to the end of the body.
        package var body = Duration.seconds(30)
        /// From the start of a connection to the end of its TLS handshake.
        package var handshake = Duration.seconds(10)
        /// For a request's first byte.
        package var idle = Duration.seconds(75)
        /// For the client to take an answer, or another 256 KiB of it.
        package var send = Duration.seconds(30)
    }
}
