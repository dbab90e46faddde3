import Cryptography
import HTTP
import Testing
import TokenStore

@testable import TokenService

/// Which user a request is for, in each mode, as far as no store has to be asked.
@Suite struct UserAccessTests {
    private static let known = "tcs_" + String(repeating: "A", count: 43)
    private static let other = "tcs_" + String(repeating: "B", count: 42) + "A"

    /// Knows the tokens `eyJ.good.sig` and `eyA.good.sig`.
    private static func bearer(isReadInUniqueID: Bool) -> UserAccess.Mode {
        .bearer(isReadInUniqueID: isReadInUniqueID) { (token) throws(AccessFailure) in
            let all = ByteRange(0, token.count)
            guard token.equals(all, "eyJ.good.sig") || token.equals(all, "eyA.good.sig") else { throw .invalidToken }
            return Array("anna".utf8)
        }
    }

    private static var bearer: UserAccess.Mode { bearer(isReadInUniqueID: false) }
    private static var bearerInID: UserAccess.Mode { bearer(isReadInUniqueID: true) }
    private static var session: UserAccess.Mode { .session(idleTimeout: 100) }
    private static var header: UserAccess.Mode { .header(name: Array("x-user".utf8)) { _ in } }

    /// Describes what is found: `user NAME PLACE`, `store PLACE`, or `REASON PLACE`.
    private func find(
        _ mode: UserAccess.Mode, _ uniqueID: String?, _ lines: [String] = [], trusted: Bool = true,
        certificate: ClientCertificate? = nil, at now: Int64 = 50
    ) -> String {
        let sessions = SessionCache(limit: 1 << 20)
        let key = SessionKey([UInt8](repeating: 7, count: 32).span)
        let stored = UserSession(
            id: SessionID([UInt8](repeating: 1, count: 16)), user: Array("anna".utf8), createdAt: 0, expiresAt: 1_000,
            lastUsedAt: 0)
        sessions.insert(SessionCache.Entry(stored, key, Array(Self.known.utf8), nil, sessions.ticket(for: key)))
        let head = "GET /token HTTP/1.1\r\nHost: a\r\n" + lines.map { $0 + "\r\n" }.joined() + "\r\n"
        let reader = RequestReader(reading: head)
        let policy = HTTPSPolicy(mode: .off, trusted: trusted ? [.unixSockets] : [], publicHost: "")
        let source = RequestSource(peer: policy.peer(address: nil), client: nil, certificate: certificate)
        let finding = UserAccess(mode).find(
            Array((uniqueID ?? "").utf8).span, isPresent: uniqueID != nil, reader.request.head, in: reader.requestBytes,
            from: source, sessions, at: now)
        return switch finding {
        case .user(let grant): "user \(String(decoding: grant.user, as: UTF8.self)) \(name(of: grant.place))"
        case .session(let lookup): "store \(name(of: lookup.place))"
        case .denied(let failure, let place): "\(failure) \(name(of: place))"
        }
    }

    private func name(of place: AccessFailure.Place) -> String {
        if case .parameter = place { "parameter" } else { "field" }
    }

    private static func bearer(_ token: String) -> [String] { ["Authorization: Bearer \(token)"] }

    @Test
    func `a session comes in unique_id or in Authorization`() {
        #expect(find(Self.session, Self.known) == "user anna parameter")
        #expect(find(Self.session, Self.other) == "store parameter")
        #expect(find(Self.session, nil, Self.bearer(Self.known)) == "user anna field")
        #expect(find(Self.session, nil, ["authorization: bEARER  \(Self.known) "]) == "user anna field")
        #expect(find(Self.session, nil, Self.bearer(Self.other)) == "store field")
    }

    @Test
    func `without a session there is no user`() {
        #expect(find(Self.session, nil) == "missing field")
        #expect(find(Self.session, "") == "missing parameter")
        #expect(find(Self.session, "anna") == "malformed parameter")
        #expect(find(Self.session, Self.known + "A") == "malformed parameter")
        // Bits behind the last of the secret.
        #expect(find(Self.session, "tcs_" + String(repeating: "A", count: 42) + "B") == "malformed parameter")
        #expect(find(Self.session, "tcs_" + String(repeating: "A", count: 42) + "=") == "malformed parameter")
        #expect(find(Self.session, nil, ["Authorization: Bearer"]) == "malformed field")
        #expect(find(Self.session, nil, Self.bearer("tck_" + Self.known.dropFirst(4))) == "malformed field")
    }

    /// Of a proxy that asks for passwords and passes them on, for example.
    @Test(arguments: ["Basic YTpi", "Digest username=\"a\"", "Bearerx", "Bearer,", "basic", "tcs_A", ""])
    func `a credential of another scheme is ignored`(value: String) {
        let lines = ["Authorization: " + value]
        #expect(find(Self.session, Self.known, lines) == "user anna parameter")
        #expect(find(Self.session, nil, lines) == "missing field")
        #expect(find(Self.bearerInID, "eyJ.good.sig", lines) == "user anna parameter")
        #expect(find(Self.bearer, "anna", lines) == "missing field")
        #expect(find(Self.session, Self.known, lines + Self.bearer(Self.known)) == "conflicting field")
    }

    @Test
    func `unique_id beside Authorization is the user, the same session, empty or missing`() {
        #expect(find(Self.session, "", Self.bearer(Self.known)) == "user anna field")
        #expect(find(Self.session, "anna", Self.bearer(Self.known)) == "user anna field")
        #expect(find(Self.session, Self.known, Self.bearer(Self.known)) == "user anna field")
        #expect(find(Self.session, "bert", Self.bearer(Self.known)) == "otherUser field")
        #expect(find(Self.session, "annaa", Self.bearer(Self.known)) == "otherUser field")
        #expect(find(Self.session, Self.other, Self.bearer(Self.known)) == "conflicting field")
        #expect(find(Self.session, nil, Self.bearer(Self.known) + Self.bearer(Self.known)) == "conflicting field")
    }

    @Test
    func `a session ends by its age and by not being used`() {
        #expect(find(Self.session, Self.known, at: 50) == "user anna parameter")
        // The use is to be noted, and another server may have noted a later one.
        #expect(find(Self.session, Self.known, at: 51) == "store parameter")
        #expect(find(Self.session, Self.known, at: 999) == "store parameter")
        #expect(find(Self.session, Self.known, at: 1_000) == "expired parameter")
        // Made by a clock that was ahead, by a day or more.
        #expect(find(Self.session, Self.known, at: -86_400) == "user anna parameter")
        #expect(find(Self.session, Self.known, at: -86_401) == "expired parameter")
    }

    @Test
    func `a JWT comes in Authorization, and in unique_id if that is allowed`() {
        #expect(find(Self.bearer, nil, Self.bearer("eyJ.good.sig")) == "user anna field")
        #expect(find(Self.bearer, nil, Self.bearer("eyJ.bad.sig")) == "invalidToken field")
        #expect(find(Self.bearer, "eyJ.good.sig") == "missing field")
        #expect(find(Self.bearer, nil) == "missing field")
        #expect(find(Self.bearerInID, "eyJ.good.sig") == "user anna parameter")
        #expect(find(Self.bearerInID, "anna") == "invalidToken parameter")
        #expect(find(Self.bearerInID, "") == "missing parameter")
        #expect(find(Self.bearerInID, nil) == "missing field")
    }

    @Test
    func `unique_id beside a JWT is its user or the same JWT`() {
        let good = Self.bearer("eyJ.good.sig")
        #expect(find(Self.bearer, "anna", good) == "user anna field")
        #expect(find(Self.bearer, "bert", good) == "otherUser field")
        #expect(find(Self.bearer, "eyJ.good.sig", good) == "otherUser field")
        #expect(find(Self.bearerInID, "eyJ.good.sig", good) == "user anna field")
        #expect(find(Self.bearerInID, "eyJ.else.sig", good) == "conflicting field")
        // White space follows the first brace of the header's object.
        #expect(find(Self.bearerInID, "eyA.good.sig", Self.bearer("eyA.good.sig")) == "user anna field")
        #expect(find(Self.bearerInID, "bert", good) == "otherUser field")
    }

    @Test
    func `a header counts from a trusted proxy, once, in its exact spelling`() {
        #expect(find(Self.header, nil, ["X-User: anna"]) == "user anna field")
        #expect(find(Self.header, "anna", ["x-USER: anna"]) == "user anna field")
        #expect(find(Self.header, "bert", ["X-User: anna"]) == "otherUser field")
        #expect(find(Self.header, nil, ["X-User: anna"], trusted: false) == "missing field")
        #expect(find(Self.header, nil, ["X_User: anna"]) == "missing field")
        #expect(find(Self.header, nil, ["X-User:"]) == "missing field")
        #expect(find(Self.header, nil, ["X-User: anna", "X-User: anna"]) == "conflicting field")
        #expect(find(Self.header, nil, ["X-User: a<b>c"]) == "malformed field")
        for name in ["<nil>", "<no value>"] {
            #expect(find(Self.header, nil, ["X-User: \(name)"]) == "malformed field")
        }
        #expect(find(Self.header, nil, ["X-User: " + String(repeating: "x", count: 1_025)]) == "malformed field")
        #expect(find(Self.header, "anna") == "missing field")
    }

    @Test(
        arguments: [
            ("(null)", "(null)"), ("(NULL)", "(null)"), ("null", "null"), ("Null", "null"), ("undefined", "undefined"),
            ("None", "none"), ("nil", "nil"), ("-", "-"), ("anonymous", "anonymous"),
            ("anonymousUser", "anonymoususer"),
            ("nobody", "nobody"), ("{http.reverse_proxy.header.Remote-User}", "{http...}"),
            ("{http.auth.user.id}", "{http...}"),
            // Names of persons.
            ("nullmann", nil), ("null@example.com", nil), ("--", nil), ("(null", nil),
            ("{6f9619ff-8b86-d011-b42d-00cf4fc964ff}", nil),
            ("{http", nil), ("nobody1", nil), ("anonymous.1", nil), ("guest", nil),
        ] as [(String, String?)])
    func `a header that names nobody is no user, and its proxy is warned of`(value: String, warned: String?) {
        var warnings: [String] = []
        let mode = UserAccess.Mode.header(name: Array("x-user".utf8)) { warnings.append("\($0)") }
        for id in [nil, value] {
            #expect(find(mode, id, ["X-User: \(value)"]) == (warned == nil ? "user \(value) field" : "missing field"))
        }
        #expect(warnings == (warned.map { [$0, $0] } ?? []))
        #expect(find(mode, nil, ["X-User: \(value)"], trusted: false) == "missing field")
        #expect(warnings.count == (warned == nil ? 0 : 2))
    }

    @Test(arguments: [0, 3 * 86_400])
    func `a new session is valid by the store's clock and by the wall clock, whichever is right`(ahead: Int64) {
        let new = UserSession(id: .random(), user: [], storeTime: 1_000 + ahead, wallTime: 1_000, maxAge: 100)
        for now in [1_000 + ahead, 1_000] { #expect(UserAccess.validity(of: new, 10, at: now) == .valid) }
        #expect(UserAccess.validity(of: new, 10, at: 1_100 + ahead) == .tooOld)
        #expect(UserAccess.validity(of: new, 10, at: 1_011 + ahead) == .idle)
    }

    @Test func `a session with a manipulated time ends nothing else`() {
        for lastUse in [Int64.min, .max] {
            let session = UserSession(
                id: .random(), user: [], createdAt: .min, expiresAt: .max, lastUsedAt: lastUse)
            #expect(UserAccess.validity(of: session, 10, at: 1_000) == .idle)
        }
    }

    @Test
    func `a certificate stands for its name`() {
        func certificate(_ name: String?) -> ClientCertificate {
            ClientCertificate(
                uriName: nil, dnsName: name.map { Array($0.utf8) }, commonName: Array("other".utf8))
        }
        #expect(find(.certificate(.sanDNS), nil, certificate: certificate("anna")) == "user anna field")
        #expect(find(.certificate(.sanDNS), "bert", certificate: certificate("anna")) == "otherUser field")
        #expect(find(.certificate(.sanDNS), "anna") == "missing field")
        #expect(find(.certificate(.sanDNS), nil, certificate: certificate(nil)) == "malformed field")
        #expect(find(.certificate(.sanDNS), nil, certificate: certificate("a<b>")) == "malformed field")
    }
}
