import JWT
import TestSupport
import Testing
import TokenService

@testable import Settings

@Suite struct AccessSettingsTests {
    /// A value by the name of its key, without `access.`; keys of other sections begin with a slash.
    private func load(_ values: [String: String]) throws -> Settings {
        var environment: [String: String] = [:]
        for (key, value) in values {
            let key = key.hasPrefix("/") ? String(key.dropFirst()) : "access.\(key)"
            environment[try #require(Setting.all.first { $0.key == key }).environmentName] = value
        }
        return try SettingsLoader(environment: environment).load()
    }

    private func fault(_ values: [String: String]) -> String {
        do {
            _ = try load(values)
            return "accepted"
        } catch {
            return "\(error)"
        }
    }

    /// For each mode, settings with which it works.
    private static let modes: [String: [String: String]] = [
        "open": [:], "session": ["api.keys_file": "/keys"],
        "bearer": ["bearer.issuer": "https://a.example", "bearer.audience": "cache", "bearer.keys_file": "/jwks"],
        "header": ["header.name": "Remote-User", "/trusted_proxies": "10.0.0.1"],
        "certificate": [
            "/tls.client_ca": "/ca", "/listen": "https://127.0.0.1:8443", "/tls.certificate": "/c",
            "/tls.private_key": "/k",
        ],
    ]

    @Test(arguments: modes.keys)
    func `a mode works with the settings that it needs, and with none of them missing`(mode: String) throws {
        let needed = try #require(Self.modes[mode])
        let complete = needed.merging(["mode": mode]) { $1 }
        #expect(try load(complete).access.mode.rawValue == mode)
        for key in needed.keys where key != "/tls.certificate" && key != "/tls.private_key" {
            let name = key.hasPrefix("/") ? String(key.dropFirst()) : "access.\(key)"
            let text = fault(complete.filter { $0.key != key })
            #expect(text.hasPrefix("access.mode is \(mode), and \(name) "), "\(text)")
        }
    }

    @Test func `a mode that is not set up says what is missing and how to mend it`() {
        #expect(
            fault(["mode": "session"]) == """
                access.mode is session, and access.api.keys_file is not set: nobody could make sessions; name a file there, \
                and make a key for the app's server with `token-cache access keys add NAME --scope sessions`
                """
        )
        #expect(
            fault(["mode": "header", "header.name": "X-User"]) == """
                access.mode is header, and trusted_proxies has its default (127.0.0.0/8, ::1, unix): every program on this \
                machine could be any user; name the addresses of the proxies that authenticate, and nothing else, such as \
                [127.0.0.1] or [unix]
                """
        )
        #expect(
            fault(["mode": "header", "header.name": "X-User", "/trusted_proxies": "none"]).contains("no request would")
        )
        // The same set in another order is still the default.
        #expect(
            fault(["mode": "header", "header.name": "X-User", "/trusted_proxies": "unix,::1,127.0.0.0/8"])
                .contains("has its default")
        )
        #expect(
            fault(["mode": "certificate", "/tls.client_ca": "/ca"]).contains("certificate, and listen has no https://"))
    }

    @Test(
        arguments: [
            ("", true), ("Remote-User", true), ("X-Forwarded-User", true), ("remote_user", false), ("a b", false),
            ("a:", false), ("\u{e9}", false), ("Authorization", false), ("HOST", false), ("x-request-id", false),
            ("X-Forwarded-For", false), ("if-match", false),
        ]
    )
    func `the header of the user is a name that nothing else has`(name: String, isAllowed: Bool) {
        #expect((fault(["header.name": name]) == "accepted") == isAllowed)
    }

    @Test func `failures are a rate, or off as in every mode by default`() throws {
        #expect(try load([:]).access.failures == nil)
        let session = ["mode": "session", "api.keys_file": "/k"]
        #expect(try load(session).access.failures == nil)
        #expect(try load(session.merging(["failures": "off"]) { $1 }).access.failures == nil)
        let open = try load(["failures": "5/s"])
        #expect(open.access.failures?.interval == .milliseconds(200))
        #expect(open.listing.contains("access.failures: 5/s"))
        for text in ["auto", "0/min", "1000001/s", "+1/s", "30/day", "30", "/s", "1/", "1/s/s", " 1/s", "\u{663}/s"] {
            #expect(fault(["failures": text]).contains("such as 30/min"), "\(text)")
        }
        #expect(FailureRate("100/h")?.interval == .seconds(36))
    }

    @Test func `a reload does not change the mode, and keeps what the mode needs`() throws {
        let header = try load(["mode": "header", "header.name": "Remote-User", "/trusted_proxies": "10.0.0.1"])
        let change = SettingsChange(from: header, to: Settings(), takesTLS: false)
        #expect(change.settings.access.mode == .header)
        #expect(change.postponed.contains("access.mode from header to open"))
        #expect(throws: SettingsError.self) { try change.settings.checkAccess() }
    }

    @Test func `the rules for JWTs are those of the settings`() throws {
        let needed = try #require(Self.modes["bearer"])
        let standard = try load(needed).access.bearer.rules
        #expect(standard.issuer == "https://a.example" && standard.audiences == ["cache"])
        #expect(standard.userClaim == "sub")
        let rules = try load(needed.merging(["bearer.user_claim": "email"]) { $1 }).access.bearer.rules
        #expect(rules.userClaim == "email")
    }

    @Test(arguments: ["https://a.example,https://b.example", "https://a.example https://b.example"])
    func `two issuers are refused with the reason`(value: String) {
        let reason = "each of several issuers could sign tokens for the others' users"
        #expect(fault(["bearer.issuer": value]).contains(reason))
    }
}
