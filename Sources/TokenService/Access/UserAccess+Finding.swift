internal import Cryptography
package import HTTP
internal import Synchronization
internal import TokenStore

extension UserAccess {
    /// Finds the user of a request as far as that takes no store.
    ///
    /// - Parameters:
    ///   - uniqueID: The parameter with its tags removed; empty if it is missing.
    ///   - isPresent: Whether the request has the parameter.
    ///   - head: The request's head.
    ///   - bytes: The request's bytes.
    ///   - source: Where the request comes from.
    ///   - sessions: Those that were used recently.
    ///   - now: In seconds since 1970.
    func find(
        _ uniqueID: Span<UInt8>, isPresent: Bool, _ head: RequestHead, in bytes: Span<UInt8>,
        from source: RequestSource,
        _ sessions: SessionCache, at now: Int64
    ) -> Finding {
        let finding: Finding
        switch mode {
        case .session(let rules):
            return session(uniqueID, isPresent: isPresent, head, in: bytes, rules, sessions, at: now)
        case .bearer(let rules):
            return bearer(uniqueID, isPresent: isPresent, head, in: bytes, from: source, rules, at: now)
        case .header(let name): finding = Self.header(name, head, in: bytes, from: source)
        case .certificate(let kind): finding = Self.certificate(of: source, kind)
        }
        guard case .user(let grant) = finding else { return finding }
        // The browser shows these credentials whatever page sends a request.
        if head.fields.mentionsPage, head.isFromForeignPage(in: bytes, allowsTLS: true) {
            return .denied(.foreignPage, .field)
        }
        return Self.check(uniqueID, grant)
    }

    /// Whether `unique_id` is that of the user, or there is none.
    static func check(_ uniqueID: Span<UInt8>, _ grant: Grant) -> Finding {
        uniqueID.isEmpty || uniqueID.equals(ByteRange(0, uniqueID.count), grant.user)
            ? .user(grant) : .denied(.otherUser, grant.place)
    }

    // MARK: - Session

    private func session(
        _ uniqueID: Span<UInt8>, isPresent: Bool, _ head: RequestHead, in bytes: Span<UInt8>, _ rules: SessionRules,
        _ sessions: SessionCache, at now: Int64
    ) -> Finding {
        let shown: ByteRange?
        do throws(AccessFailure) {
            shown = try Self.bearerToken(of: head, in: bytes)
        } catch {
            return .denied(error, .field)
        }
        guard let range = shown else {
            if uniqueID.isEmpty { return .denied(.missing, isPresent ? .parameter : .field) }
            guard let text = SessionText(uniqueID) else { return .denied(.malformed, .parameter) }
            return session(text, uniqueID, .parameter, rules, sessions, at: now)
        }
        let token = bytes.extracting(range.indices)
        guard let text = SessionText(token) else { return .denied(.malformed, .field) }
        let other = SessionText(uniqueID)
        if let other, other != text { return .denied(.conflicting, .field) }
        let finding = session(text, token, .field, rules, sessions, at: now)
        guard case .user(let grant) = finding, other == nil else { return finding }
        return Self.check(uniqueID, grant)
    }

    private func session(
        _ text: SessionText, _ bytes: Span<UInt8>, _ place: AccessFailure.Place, _ rules: SessionRules,
        _ sessions: SessionCache, at now: Int64
    ) -> Finding {
        if let entry = sessions.find(text) {
            switch Self.validity(of: entry, rules, at: now) {
            case .valid: return .user(Grant(user: entry.session.user, session: entry, place: place))
            case .tooOld: return .denied(.expired, place)
            // Another process may have noted a use since.
            case .idle: break
            }
        }
        guard let secret = SessionSecret.secret(of: bytes) else { return .denied(.malformed, place) }
        return .session(SessionLookup(text: text, secret: secret, place: place))
    }

    enum Validity {
        case valid, tooOld, idle
    }

    /// How far in the future a session may have been made, in seconds: the clocks of servers differ, and a clock may be set back,
    /// by up to a day as for a `StoreClock`.
    private static let latestAhead: Int64 = 86_400

    /// Whether a session that has not been ended is still valid.
    ///
    /// - Parameter now: By the store's clock.
    static func validity(of entry: SessionCache.Entry, _ rules: SessionRules, at now: Int64) -> Validity {
        // A session from the future was made while the clock was ahead, and would last too long by as much.
        if now >= entry.session.expiresAt || entry.session.createdAt > now + latestAhead { return .tooOld }
        return now - entry.lastUsedAt.load(ordering: .relaxed) > rules.idleTimeout ? .idle : .valid
    }

    // MARK: - JWT

    private func bearer(
        _ uniqueID: Span<UInt8>, isPresent: Bool, _ head: RequestHead, in bytes: Span<UInt8>,
        from source: RequestSource,
        _ rules: BearerRules, at now: Int64
    ) -> Finding {
        func verify(_ token: Span<UInt8>, _ place: AccessFailure.Place) -> Finding {
            do throws(AccessFailure) {
                let user = try rules.verify(token, now, source.certificate?.thumbprint)
                return .user(Grant(user: user, session: nil, place: place))
            } catch {
                return .denied(error, place)
            }
        }

        let shown: ByteRange?
        do throws(AccessFailure) {
            shown = try Self.bearerToken(of: head, in: bytes)
        } catch {
            return .denied(error, .field)
        }
        guard let range = shown else {
            guard rules.isReadInUniqueID, isPresent else { return .denied(.missing, .field) }
            return uniqueID.isEmpty ? .denied(.missing, .parameter) : verify(uniqueID, .parameter)
        }
        let token = bytes.extracting(range.indices)
        let finding = verify(token, .field)
        guard case .user(let grant) = finding, !uniqueID.isEmpty else { return finding }
        if rules.isReadInUniqueID {
            if uniqueID.equals(ByteRange(0, uniqueID.count), [UInt8](range, in: bytes)) { return finding }
            if Self.looksLikeToken(uniqueID) { return .denied(.conflicting, .field) }
        }
        return Self.check(uniqueID, grant)
    }

    /// Whether a text has the three parts of a signed JWT, of which the first is an encoded JSON object.
    private static func looksLikeToken(_ text: Span<UInt8>) -> Bool {
        guard text.count > 3, text.equals(ByteRange(0, 3), "eyJ") else { return false }
        var dots = 0
        for index in text.indices where text[index] == UInt8(ascii: ".") { dots += 1 }
        return dots == 2
    }

    // MARK: - Header and certificate

    /// The user in a header that a trusted proxy has set.
    private static func header(
        _ name: [UInt8], _ head: RequestHead, in bytes: Span<UInt8>, from source: RequestSource
    ) -> Finding {
        guard source.peer.isTrusted else { return .denied(.missing, .field) }
        let values = head.values(ofFieldNamed: name, in: bytes)
        guard let value = values.first, !value.isEmpty else { return .denied(.missing, .field) }
        guard values.count == 1 else { return .denied(.conflicting, .field) }
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
    /// What another scheme has is no credential of ours: a proxy that asks for passwords may pass them on.
    ///
    /// - Throws: `conflicting` for several lines of the field, `malformed` for one without a token.
    package static func bearerToken(
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
