import Foundation
import HTTP
import TestSupport
import Testing
import TokenService

@testable import Settings

@Suite struct SettingsTests {
    private let folder = TemporaryDirectory()

    private func load(
        _ yaml: String? = nil, environment: [String: String] = [:], flags: [String: [String]] = [:]
    ) throws -> Settings {
        var loader = SettingsLoader(flags: flags, environment: environment)
        if let yaml {
            let path = folder.path + "/c.yaml"
            try yaml.write(toFile: path, atomically: true, encoding: .utf8)
            loader.filePath = path
        }
        return try loader.load()
    }

    private func fault(
        _ yaml: String? = nil, environment: [String: String] = [:], flags: [String: [String]] = [:]
    ) -> String {
        do {
            _ = try load(yaml, environment: environment, flags: flags)
            return "accepted"
        } catch {
            return "\(error)".replacing(folder.path + "/", with: "")
        }
    }

    @Test func `flags come before the environment, that before the file, and that before the defaults`() throws {
        let yaml = "drain_timeout: 3s\nlimits:\n  body: 2 KiB\n  head: 3 KiB\n"
        let environment = ["TOKEN_CACHE_LIMITS_BODY": "4 KiB", "TOKEN_CACHE_LIMITS_HEAD": "5 KiB"]
        let settings = try load(yaml, environment: environment, flags: ["limits.body": ["6 KiB"]])
        #expect(settings.limits.body == 6 << 10)
        #expect(settings.limits.head == 5 << 10)
        #expect(settings.drainTimeout == .seconds(3))
        #expect(settings.timeouts.idle == .seconds(75))
    }

    @Test func `what programs write for off and for nothing is understood`() throws {
        let settings = try load(
            "access_log: false\nhttps: {mode: false, public_host: null}\ntls: {certificate: ~}\nsealing: {key_ring: null}"
        )
        #expect(!settings.accessLog.isOn && settings.https.mode == .off && settings.https.publicHost.isEmpty)
        #expect(settings.tls.certificates.isEmpty && settings.sealing.keyRing.isEmpty)
    }

    @Test func `lists may be lists or single values`() throws {
        #expect(try load("listen: 127.0.0.1:1").listen.map(\.description) == ["127.0.0.1:1"])
        let yaml = "listen:\n  - 127.0.0.1:1\n  - http://[::1]:2\npaths: [/a]\n"
        let settings = try load(yaml)
        #expect(settings.listen.map(\.description) == ["127.0.0.1:1", "[::1]:2"])
        #expect(settings.paths == ["/a"])
        let both = try load(environment: ["TOKEN_CACHE_LISTEN": "127.0.0.1:1,127.0.0.1:2"])
        #expect(both.listen.count == 2)
    }

    @Test(
        arguments: [
            ("limits:\n  bdy: 1", "c.yaml, line 2: there is no setting limits.bdy; did you mean limits.body?"),
            (
                "wholly_unlike: 1",
                "c.yaml, line 1: there is no setting wholly_unlike; remove it, and token-cache check-config lists all settings"
            ),
            (
                "admin: 7",
                """
                c.yaml, line 1: admin is a section and has no value of its own; write one of its settings below it, indented: \
                listen
                """
            ),
            ("PATHS: 1", "c.yaml, line 1: there is no setting PATHS; did you mean paths?"),
            (
                "retention:\n  for: 1d",
                "c.yaml, line 2: retention.for is no setting; the section retention has after_expired, after_written"
            ),
            (
                "retention:\n  after_written: 90",
                """
                c.yaml, line 2: retention.after_written is "90"; allowed is off, or a time of at least 1s with its unit, such as \
                90d for days
                """
            ),
            (
                "\nlimits:\n  body: 1 TB",
                """
                c.yaml, line 3: limits.body is "1 TB"; allowed is a size from 1 KiB to 64 MiB, in bytes or with KiB, \
                MiB or GiB, such as 64 KiB
                """
            ),
            (
                "listen: https://127.0.0.1:1",
                "listen has https://127.0.0.1:1, and tls.certificate and tls.private_key name no files for it"
            ),
            (
                "tls: {certificate: [a, b], private_key: c}",
                "tls.certificate names 2 files and tls.private_key 1 file; each certificate needs its key"
            ),
            (
                "limits:\n  body: {}",
                "the settings file c.yaml cannot be read: line 2: limits.body is an empty section"
            ),
            (
                "limits: {connections: 0}",
                #"c.yaml, line 1: limits.connections is "0"; allowed is a number from 1 to 1000000"#
            ),
            (
                "limits: {connections: [1, 2]}",
                #"c.yaml, line 1: limits.connections is ["1", "2"]; allowed is a number from 1 to 1000000"#
            ),
            (
                "access_log: /var/log/a",
                #"c.yaml, line 1: access_log is "/var/log/a"; allowed is off, combined, json, combined PATH, json PATH"#
            ),
            (
                "access_log: off /var/log/a",
                #"c.yaml, line 1: access_log is "off /var/log/a"; allowed is off, combined, json, combined PATH, json PATH"#
            ),
            (
                "timeouts:\n  idle: soon",
                """
                c.yaml, line 2: timeouts.idle is "soon"; allowed is a time from 100ms to 3600s, in seconds or with ms, \
                s, m, h or d, such as 500ms or 2m
                """
            ),
            (
                "listen: [\"::1:80\"]",
                """
                c.yaml, line 1: listen is "::1:80"; allowed is an address (0.0.0.0 and [::] for all) and a port, such as \
                127.0.0.1:8080, http://[::1]:8080 or https://0.0.0.0:8443, a Unix socket by its absolute \
                path of at most 107 bytes, such as unix:/run/token-cache/http.sock, or systemd; with \
                ?proxy-protocol=required (and &tls=terminated), for https with ?client-certificate=required or optional, for \
                a Unix socket with ?mode=0660
                """
            ),
            (
                "https: {mode: strikt}", #"c.yaml, line 1: https.mode is "strikt"; allowed is strict, proxy, off"#
            ),
            (
                "trusted_proxies: [10.0.0.0/33]",
                """
                c.yaml, line 1: trusted_proxies is "10.0.0.0/33"; allowed is addresses and blocks, such as 10.0.0.0/8 or \
                fd00::1, and unix for Unix sockets; or none
                """
            ),
            (
                "https: {public_host: \"a b\"}",
                """
                c.yaml, line 1: https.public_host is "a b"; allowed is empty, or a host with an optional port, such as \
                tokens.example.com
                """
            ),
            (
                "listen: [\"127.0.0.1:1\", \"127.0.0.1:1\"]",
                "listen and admin.listen have 127.0.0.1:1 twice; name it once, and set listen: systemd if a socket unit replaces it"
            ),
            (
                "{listen: [\"127.0.0.1:1\"], admin: {listen: \"127.0.0.1:1\"}}",
                "listen and admin.listen have 127.0.0.1:1 twice; name it once, and set listen: systemd if a socket unit replaces it"
            ),
            (
                "{listen: [\"unix:/a\", \"unix:/a?mode=0600\"]}",
                "listen and admin.listen have unix:/a twice; name it once, and set listen: systemd if a socket unit replaces it"
            ),
        ]
    )
    func `a fault names its place, the key, what was found and what is allowed`(yaml: String, text: String) {
        #expect(fault(yaml) == text)
    }

    @Test func `faults of the environment and of flags name the variable and the flag`() {
        #expect(
            fault(environment: ["TOKEN_CACHE_LIMITS_CONNECTIONS": "x"])
                == #"environment: TOKEN_CACHE_LIMITS_CONNECTIONS is "x"; allowed is a number from 1 to 1000000"#
        )
        #expect(
            fault(environment: ["TOKEN_CACHE_LIMIT_BODY": "1"])
                == "environment: there is no setting TOKEN_CACHE_LIMIT_BODY; did you mean TOKEN_CACHE_LIMITS_BODY?"
        )
        #expect(
            fault(environment: ["TOKEN_CACHE_FOO": "1"]) == """
                environment: there is no setting TOKEN_CACHE_FOO; remove it, and token-cache check-config lists all settings
                """
        )
        #expect(
            fault(flags: ["log_level": ["loud"]]) == """
                command line: --log-level is "loud"; allowed is trace, debug, info, notice, warning, error, critical
                """
        )
    }

    @Test func `variables that Kubernetes makes for Services are no settings`() throws {
        let names = ["", "ADMIN_", "LISTEN_"].flatMap { service in
            [
                "SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_80_TCP", "PORT_53_UDP_ADDR",
                "PORT_80_TCP_PORT", "PORT_80_TCP_PROTO",
            ].map { "TOKEN_CACHE_" + service + $0 }
        }
        let environment = Dictionary(uniqueKeysWithValues: names.map { ($0, "tcp://10.0.0.1:80") })
        _ = try load(environment: environment)
        let loader = SettingsLoader(
            environment: environment.merging(["TOKEN_CACHE_LISTEN": "x", "A_PORT": "tcp://a:1"]) { $1 })
        #expect(loader.ignoredVariables == names.sorted())
        // Kubernetes makes none with a number alone, so somebody took this one for a setting.
        #expect(fault(environment: ["TOKEN_CACHE_PORT": "8080"]).contains("there is no setting TOKEN_CACHE_PORT"))
    }

    @Test(arguments: [
        (#""/srv/x""#, "begins with a quotation mark"), ("'/srv/x'", "begins with a quotation mark"),
        ("${HOME}/x", "has a variable in it"), ("/srv/${NAME}", "has a variable in it"),
        ("$HOME/x", "has a variable in it"), ("~/x", "has ~ in it"),
    ])
    func `a value that a shell would have changed is refused wherever it stands`(value: String, reason: String) {
        let found = [
            fault(environment: ["TOKEN_CACHE_DATA_DIRECTORY": value]), fault(flags: ["data_directory": [value]]),
            fault("data_directory: " + (value.hasPrefix("'") ? "\"\(value)\"" : "'\(value)'")),
        ]
        for text in found { #expect(text.contains(reason) && !text.contains("srv")) }
    }

    @Test func `a file that is missing or no YAML is named`() {
        var loader = SettingsLoader()
        loader.filePath = folder.path + "/missing.yaml"
        let text = #expect(throws: SettingsError.self) { try loader.load() }?.description ?? ""
        #expect(text.contains("the settings file \(folder.path)/missing.yaml cannot be read: No such file"))
        #expect(fault("a: [b").hasPrefix("the settings file c.yaml cannot be read: line"))
        #expect(fault("- a\n").hasPrefix("the settings file c.yaml cannot be read: line"))
    }

    @Test(
        arguments: [
            ("127.0.0.1:8080", "127.0.0.1:8080"), ("http://[::1]:8080", "[::1]:8080"), ("localhost:1", "localhost:1"),
            ("http://0.0.0.0:80/", "0.0.0.0:80"), ("[fe80::1%eth0]:1", "[fe80::1%eth0]:1"), ("8080", nil),
            (":8080", nil),
            ("a:b", nil), ("a:65536", nil), ("::1:8080", nil), ("https://a:1", "https://a:1"),
            ("https://[::1]:1?proxy-protocol=required", "https://[::1]:1?proxy-protocol=required"),
            ("http://a:1?x=y", nil), ("", nil),
            ("https://a:1?client-certificate=optional", "https://a:1?client-certificate=optional"),
            (
                "https://a:1?client-certificate=required&proxy-protocol=required",
                "https://a:1?proxy-protocol=required&client-certificate=required"
            ),
            ("a:1?tls=terminated&proxy-protocol=required", "a:1?proxy-protocol=required&tls=terminated"),
            ("a:1?tls=terminated", nil), ("https://a:1?proxy-protocol=required&tls=terminated", nil),
            ("a:1?proxy-protocol=required&tls=yes", nil),
            ("0.0.0.0:9090?host=a.b&host=c.d", "0.0.0.0:9090?host=a.b&host=c.d"), ("a:1?host=", nil),
            ("a:1?host=b:1", nil),
            ("a:1?host=b/c", nil), ("unix:/a?host=b.c", nil),
            ("a:1?client-certificate=required", nil), ("https://a:1?client-certificate=none", nil),
        ]
    )
    func `listeners are read as they are written`(text: String, description: String?) {
        #expect(ListenAddress(text)?.description == description)
    }

    @Test func `sizes and times are read with their units`() {
        let sizes: [(String, Int?)] = [
            ("0", 0), ("12", 12), ("8 KiB", 8192), ("1MiB", 1 << 20), ("2 GiB", 2 << 30), ("8 kb", nil), ("KiB", nil),
            ("-1", nil), ("1.5 MiB", nil), ("9999999999999 GiB", nil),
        ]
        for (text, bytes) in sizes { #expect(Quantities.bytes(text) == bytes, "\(text)") }
        let durations: [(String, Duration?)] = [
            ("10", .seconds(10)), ("10s", .seconds(10)), ("500 ms", .milliseconds(500)), ("2m", .seconds(120)),
            ("1h", .seconds(3_600)), ("1d", .seconds(86_400)), ("1w", nil), ("s", nil), ("", nil),
        ]
        for (text, duration) in durations { #expect(Quantities.duration(text) == duration, "\(text)") }
    }
}
