internal import Foundation

extension RemoteTokenCache.Identity: CustomStringConvertible, CustomReflectable {
    /// Its kind, and not whose it is.
    public var description: String {
        switch self {
        case .uniqueID: "uniqueID"
        case .session: "session"
        }
    }

    /// A mirror without the id.
    public var customMirror: Mirror { Mirror(self, children: []) }
}

extension RemoteTokenCache {
    /// Whom the server stores the token for.
    public enum Identity: Sendable {
        /// The user's unique id: whoever knows it can read and replace the token (the server's mode `open`).
        ///
        /// Not for sessions: if one that has ended comes in place of an id, the server answers old apps as if nothing were
        /// stored, which would be taken for a sign-out.
        case uniqueID(String)
        /// A session that your own server made for the user, or, in the server's mode `bearer`, a JWT.
        ///
        /// The closure supplies it for each request, in which it is sent as `Authorization: Bearer`; what it throws, the cache
        /// throws. It gets the session that the server has just refused (401), or nil: a new one is then tried at once, the
        /// same one ends in `TokenCacheError.unauthorized`.
        case session(@Sendable (_ refused: String?) async throws -> String)
    }

    /// Checks a unique id.
    ///
    /// - Throws: `TokenCacheError.invalidID` if the server would refuse the id or change it (its README, error 30001).
    static func check(uniqueID id: String) throws(TokenCacheError) {
        if id.isEmpty { throw .invalidID("it is empty") }
        if id.utf8.count > 1_024 {
            throw .invalidID("it has \(id.utf8.count) bytes in UTF-8, and at most 1,024 are allowed")
        }
        if id.utf8.contains(0) { throw .invalidID("it contains a NUL character") }
        // `tcs_` and 43 characters of base64url are a session of token-cache.
        if id.hasPrefix("tcs_"), id.utf8.count == 47 {
            throw .invalidID("it is a session, which must be passed as one")
        }
        // The server would remove what looks like a tag, so that two ids could become one.
        if id.utf8.contains(UInt8(ascii: "<")) { throw .invalidID("it contains <, which begins a tag") }
    }

    /// Checks a session.
    ///
    /// - Throws: `TokenCacheError.invalidID` if the session cannot stand in a header (RFC 6750, section 2.1: `b64token`).
    static func check(session: String) throws(TokenCacheError) {
        let isValid = session.unicodeScalars.allSatisfy {
            unreserved.contains($0) || "+/=".unicodeScalars.contains($0)
        }
        guard isValid, !session.isEmpty, session.utf8.count <= 8_192 else {
            throw .invalidID("a session consists of 1 to 8,192 letters, digits and -._~+/=")
        }
    }
}
