import Foundation

extension RemoteTokenCache {
    /// Whom the server stores the token for.
    public enum Identity: Sendable {
        /// The user's unique id: whoever knows it can read and replace the token (the server's mode `open`).
        ///
        /// Do not pass a session as an id: once it has ended, the server answers as if nothing were stored, which would be taken
        /// for a sign-out.
        case uniqueID(String)
        /// A session that your own server made for the user, or, in the server's mode `bearer`, a JWT.
        ///
        /// The closure supplies it for each request, which has it as `Authorization: Bearer`; the cache throws what the closure
        /// throws. If the server has just refused a session (401), the closure gets that one, otherwise nil. A new session is
        /// tried at once; the same one again ends in `TokenCacheError.unauthorized`.
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
        // The server removes tags, so that two ids could become one.
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

extension RemoteTokenCache.Identity: CustomStringConvertible, CustomReflectable {
    /// The kind of identity, without the id or session.
    public var description: String {
        switch self {
        case .uniqueID: "uniqueID"
        case .session: "session"
        }
    }

    /// A mirror without the id or session.
    public var customMirror: Mirror { Mirror(self, children: []) }
}
