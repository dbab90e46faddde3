package import Cryptography
import HTTP
import JSON
import JWT
import TokenStore

/// Finds out which user a request is for, by the credential that it shows (`access.mode`).
///
/// Belongs to one loop's thread.
package struct UserAccess {
    /// How a request shows its user.
    package enum Mode {
        /// - Parameter idleTimeout: How long sessions are valid without being used, in seconds.
        case session(idleTimeout: Int64)
        /// - Parameter isReadInUniqueID: Whether `unique_id` may be a JWT.
        case bearer(isReadInUniqueID: Bool, Verify)
        /// - Parameters:
        ///   - name: In lower case.
        ///   - warn: Called with the placeholder if the header names nobody.
        case header(name: [UInt8], warn: (StaticString) -> Void)
        case certificate(ClientCertificate.NameKind)
    }

    /// Returns the user of a JWT that is valid now by the wall clock, by which issuers date JWTs.
    package typealias Verify = (_ token: Span<UInt8>) throws(AccessFailure) -> [UInt8]

    /// The result of checking a credential.
    enum Finding {
        case user(Grant)
        /// A session that is not in memory.
        case session(SessionLookup)
        case denied(AccessFailure, AccessFailure.Place)
    }

    /// A session that has to be read from the store.
    struct SessionLookup {
        let text: [UInt8]
        let secret: [UInt8]
        let place: AccessFailure.Place
    }

    let mode: Mode

    package init(_ mode: Mode) {
        self.mode = mode
    }

    /// Bytes that a `unique_id` may have: a JWT may be longer than an id.
    var uniqueIDLimit: Int {
        if case .bearer(isReadInUniqueID: true, _) = mode { JWTVerifier.tokenLimit } else { UniqueID.limit }
    }

    /// Finds the user of a request as far as this is possible without the store.
    ///
    /// - Parameters:
    ///   - uniqueID: The parameter with its tags removed; empty if it is missing.
    ///   - isPresent: Whether the request has the parameter.
    ///   - head: The request's head.
    ///   - bytes: The request's bytes.
    ///   - source: Where the request comes from.
    ///   - sessions: The sessions that were used recently.
    ///   - now: The present by the store's clock, in seconds since 1970.
    func find(
        _ uniqueID: Span<UInt8>, isPresent: Bool, _ head: RequestHead, in bytes: Span<UInt8>,
        from source: RequestSource, _ sessions: SessionCache, at now: Int64
    ) -> Finding {
        let finding: Finding
        switch mode {
        case .session(let idleTimeout):
            return presented(
                uniqueID, isPresent: isPresent, head, in: bytes, isCredential: SessionSecret.isText,
                { session($0, $1, idleTimeout, sessions, at: now) })
        case .bearer(let isReadInUniqueID, let verify):
            return presented(
                uniqueID, isPresent: isPresent, head, in: bytes,
                isCredential: { isReadInUniqueID ? Self.looksLikeToken($0) : nil },
                { token, place in
                    do throws(AccessFailure) {
                        return .user(Grant(user: try verify(token), session: nil, place: place))
                    } catch {
                        return .denied(error, place)
                    }
                })
        case .header(let name, let warn): finding = Self.header(name, warn, head, in: bytes, from: source)
        case .certificate(let kind): finding = Self.certificate(of: source, kind)
        }
        guard case .user(let grant) = finding else { return finding }
        // A browser adds these credentials to the requests of any page.
        if head.fields.mentionsPage, head.isFromForeignPage(in: bytes, allowsTLS: true) {
            return .denied(.foreignPage, .field)
        }
        return Self.check(uniqueID, grant)
    }

    /// Grants access if `unique_id` is that of the user, or empty.
    static func check(_ uniqueID: Span<UInt8>, _ grant: Grant) -> Finding {
        uniqueID.isEmpty || uniqueID.equals(ByteRange(0, uniqueID.count), grant.user)
            ? .user(grant) : .denied(.otherUser, grant.place)
    }

    /// Finds the user by the credential in Authorization or, if it may be there, in `unique_id`.
    ///
    /// - Parameters:
    ///   - isCredential: Whether an id has the form of a credential; nil if `unique_id` must not be one.
    ///   - find: Finds the user by a credential.
    private func presented(
        _ uniqueID: Span<UInt8>, isPresent: Bool, _ head: RequestHead, in bytes: Span<UInt8>,
        isCredential: (Span<UInt8>) -> Bool?, _ find: (Span<UInt8>, AccessFailure.Place) -> Finding
    ) -> Finding {
        let field: ByteRange?
        do {
            field = try Self.bearerToken(of: head, in: bytes)
        } catch {
            return .denied(error, .field)
        }
        let looksLikeCredential = isCredential(uniqueID)
        guard let field else {
            guard looksLikeCredential != nil, isPresent else { return .denied(.missing, .field) }
            let place = AccessFailure.Place.parameter(isWrite: head.method == .post)
            return uniqueID.isEmpty ? .denied(.missing, place) : find(uniqueID, place)
        }
        let credential = bytes.extracting(field.indices)
        let finding = find(credential, .field)
        if case .denied = finding { return finding }
        if looksLikeCredential != nil, ConstantTime.areEqual(uniqueID, credential) { return finding }
        if looksLikeCredential == true { return .denied(.conflicting, .field) }
        if case .user(let grant) = finding { return Self.check(uniqueID, grant) }
        return finding
    }

    // MARK: - Session

    private func session(
        _ text: Span<UInt8>, _ place: AccessFailure.Place, _ idleTimeout: Int64, _ sessions: SessionCache,
        at now: Int64
    ) -> Finding {
        guard SessionSecret.isText(text) else { return .denied(.malformed, place) }
        if let entry = sessions.find(text) {
            switch Self.validity(of: entry.session, idleTimeout, at: now) {
            case .valid: return .user(Grant(user: entry.session.user, session: entry, place: place))
            case .tooOld: return .denied(.expired, place)
            // The store may know of a later use.
            case .unnoted, .idle: break
            }
        }
        guard let secret = SessionSecret.secret(of: text) else { return .denied(.malformed, place) }
        return .session(SessionLookup(text: text.bytes(text.indices), secret: secret, place: place))
    }

    enum Validity {
        case valid
        /// Valid, but the last use that the store knows of is half of the idle time ago: this one is to be noted.
        case unnoted
        case tooOld, idle
    }

    /// How far in the future a session may have been made, in seconds: the clocks of servers differ, and a clock may be set back,
    /// by up to a day as for a `StoreClock`.
    private static let latestAhead: Int64 = 86_400

    /// Whether a session that has not been ended is still valid.
    ///
    /// - Parameter now: By the store's clock.
    static func validity(of session: UserSession, _ idleTimeout: Int64, at now: Int64) -> Validity {
        // A session from the future was made while the clock was ahead, and would last too long by as much.
        if now >= session.expiresAt || session.createdAt > now + latestAhead { return .tooOld }
        // The same goes for a use in the future. A store that somebody has manipulated may hold any number.
        let lastUsedAt = session.lastUsedAt > now + latestAhead ? session.createdAt : session.lastUsedAt
        let (idleTime, hasOverflowed) = now.subtractingReportingOverflow(lastUsedAt)
        return hasOverflowed || idleTime > idleTimeout ? .idle : idleTime > idleTimeout / 2 ? .unnoted : .valid
    }

    // MARK: - JWT

    /// Whether a text has the three parts of a signed JWT, of which the first is an encoded JSON object.
    private static func looksLikeToken(_ text: Span<UInt8>) -> Bool {
        guard text.count > 3, text.equals(ByteRange(0, 3), "eyJ") else { return false }
        var dots = 0
        for index in text.indices where text[index] == UInt8(ascii: ".") { dots += 1 }
        return dots == 2
    }

    // MARK: - Header and certificate

    /// Placeholders that proxies send when no user has logged in; all requests with one would share a user.
    ///
    /// The first are how C (and so Apache, for a variable that is not set), Java, JavaScript, Python, Lua and logs write that
    /// there is no value; the others are what programs call a client that has not logged in. In lower case.
    private static let nobody: [StaticString] = [
        "(null)", "null", "undefined", "none", "nil", "-", "anonymous", "anonymoususer", "nobody",
    ]

    /// The user in a header that a trusted proxy has set.
    private static func header(
        _ name: [UInt8], _ warn: (StaticString) -> Void, _ head: RequestHead, in bytes: Span<UInt8>,
        from source: RequestSource
    ) -> Finding {
        guard source.peer.isTrusted else { return .denied(.missing, .field) }
        let values = head.values(ofFieldNamed: name, in: bytes)
        guard let value = values.first, !value.isEmpty else { return .denied(.missing, .field) }
        guard values.count == 1 else { return .denied(.conflicting, .field) }
        // A placeholder that Caddy has not replaced, as with forward_auth if the login names nobody.
        let isPlaceholder =
            bytes[Int(value.start)] == UInt8(ascii: "{") && bytes.hasPrefix("http.", in: value.indices.dropFirst())
        if let name = isPlaceholder ? "{http...}" : nobody.first(where: { bytes.equalsIgnoringCase(value, $0) }) {
            warn(name)
            return .denied(.missing, .field)
        }
        return user(named: [UInt8](value, in: bytes))
    }

    private static func certificate(of source: RequestSource, _ kind: ClientCertificate.NameKind) -> Finding {
        guard let certificate = source.certificate else { return .denied(.missing, .field) }
        guard let name = certificate.name(kind) else { return .denied(.malformed, .field) }
        return user(named: name)
    }

    /// A user whom a proxy or an issuer has authenticated; refused if it would not be stored as it is written.
    private static func user(named name: [UInt8]) -> Finding {
        guard UniqueID(name) == .text(name) else { return .denied(.malformed, .field) }
        return .user(Grant(user: name, session: nil, place: .field))
    }

    // MARK: - Syntax

    /// The token of the field `Authorization: Bearer` (RFC 6750, section 2.1); nil without one.
    ///
    /// Credentials of other schemes are ignored: a proxy that asks for passwords may pass them on.
    ///
    /// - Throws: `conflicting` for several lines of the field, `malformed` for one without a token.
    static func bearerToken(
        of head: RequestHead, in bytes: Span<UInt8>
    ) throws(AccessFailure) -> ByteRange? {
        let lines = head.fields.authorization
        if lines.isEmpty { return nil }
        guard let value = lines.only else { throw .conflicting }
        let scheme: StaticString = "bearer"
        guard bytes.hasPrefix(scheme, in: value.indices) else { return nil }
        let rest = ByteRange(Int(value.start) + scheme.utf8CodeUnitCount, Int(value.end))
        guard !rest.isEmpty else { throw .malformed }
        return bytes[Int(rest.start)] == UInt8(ascii: " ") ? bytes.trimmed(rest) : nil
    }
}

/// Permission to read and write a user's token.
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
