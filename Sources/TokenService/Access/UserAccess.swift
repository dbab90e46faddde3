package import Cryptography
internal import HTTP
internal import JWT

/// Finds out which user a request is for, by the credential that it shows: the settings of `access.mode`, and one loop's memory
/// for it.
///
/// Belongs to one loop's thread.
package final class UserAccess {
    /// How a request shows its user.
    package enum Mode {
        case session(SessionRules)
        case bearer(BearerRules)
        /// - Parameter name: In lower case.
        case header(name: [UInt8])
        case certificate(ClientCertificate.NameKind)
    }

    /// How long sessions are valid, in seconds.
    package struct SessionRules: Sendable {
        package let idleTimeout: Int64

        package init(idleTimeout: Int64) {
            self.idleTimeout = idleTimeout
        }
    }

    /// Where JWTs may be.
    package struct BearerRules {
        /// The user that the text of a JWT stands for, at a time in seconds since 1970, on a connection whose client certificate
        /// has this SHA-256.
        package typealias Verify = (
            _ token: Span<UInt8>, _ unixTime: Int64, _ certificateThumbprint: [UInt8]?
        ) throws(AccessFailure) -> [UInt8]

        /// Whether `unique_id` may be one.
        let isReadInUniqueID: Bool
        let verify: Verify

        package init(isReadInUniqueID: Bool, verify: @escaping Verify) {
            self.isReadInUniqueID = isReadInUniqueID
            self.verify = verify
        }
    }

    /// The result of checking a credential.
    enum Finding {
        case user(Grant)
        /// A session that is not in memory; see `UserAccess.lookUp`.
        case session(SessionLookup)
        case denied(AccessFailure, AccessFailure.Place)
    }

    /// A session that has to be read from the store.
    struct SessionLookup {
        let text: SessionText
        let secret: [UInt8]
        let place: AccessFailure.Place
    }

    let mode: Mode

    package init(_ mode: Mode) {
        self.mode = mode
    }

    /// Bytes that a `unique_id` may have: a JWT is longer than an id.
    var uniqueIDLimit: Int {
        if case .bearer(let rules) = mode, rules.isReadInUniqueID { JWTVerifier.tokenLimit } else { UniqueID.limit }
    }
}

/// Leave to read and write a user's token.
struct Grant {
    let user: [UInt8]
    /// The session that stands for the user; nil for another credential.
    let session: SessionCache.Entry?
    let place: AccessFailure.Place
}

/// How a request shows which user it is for.
package enum AccessMode: String, Sendable, CaseIterable {
    /// The user is whoever `unique_id` says, as with `token.php`: whoever knows or guesses an id reads and overwrites its token.
    case open
    /// A session that was made for the user, in `unique_id` or in the header Authorization.
    case session
    /// A claim of a signed JWT.
    case bearer
    /// A header that a trusted proxy sets after it has authenticated the user.
    case header
    /// A name in the certificate of the client.
    case certificate

    /// The warning for mode `open` where other machines reach the server.
    ///
    /// - Parameter listeners: The addresses that they reach.
    package static func openWarning(_ listeners: [String]) -> String {
        """
        access.mode is open, and other machines reach \(listeners.joined(separator: ", ")): whoever knows or guesses an id \
        reads and overwrites its token
        """
    }
}
