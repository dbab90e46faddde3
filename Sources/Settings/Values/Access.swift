package import JWT
package import TokenService
package import TokenStore

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
        /// The name that is the user in mode `certificate`.
        package var certificateName = CertificateName.sanURI
        /// The rate beyond which an address gets 429 for whatever it sends; nil without a limit.
        package var failures: FailureRate?
    }

    /// The sessions of users.
    package struct Session: Sendable {
        /// How long a session is valid, however often it is used.
        package var maxAge = Duration.seconds(90 * 86_400)
        /// How long a session is valid without being used.
        package var idleTimeout = Duration.seconds(30 * 86_400)
        /// How many sessions a user may have; one more ends the oldest.
        package var perUser = 20
    }

    /// Which JWTs are accepted in mode `bearer`.
    package struct Bearer: Sendable {
        /// The claim `iss` of a token; empty if none is set.
        package var issuer = ""
        /// Values of which the claim `aud` must contain at least one.
        package var audiences: [String] = []
        /// The path of the issuer's public keys, a JWKS; empty if none is set.
        package var keysFile = ""
        package var algorithms: [JWTAlgorithm] = [.rs256, .es256, .edDSA]
        /// Values of the header `typ`, of which a token must have one.
        package var types = ["at+jwt", "JWT"]
        /// The claim that is the user.
        package var userClaim = "sub"
        /// By how much the issuer's clock may differ from the server's.
        package var leeway = Duration.seconds(30)
        /// Whether a token may also be in `unique_id`.
        package var isReadInUniqueID = false
    }
}

extension Settings {
    /// What the store keeps for how long, with the sessions that nobody uses.
    package var storeRetention: Retention {
        var retention = retention
        retention.sinceSessionUsed = access.session.idleTimeout
        return retention
    }
}
