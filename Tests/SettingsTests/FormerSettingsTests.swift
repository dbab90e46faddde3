import Foundation
import TestSupport
import Testing

@testable import Settings

/// Settings files of version 1.0.0.
struct FormerSettingsTests {
    private let folder = TemporaryDirectory()

    /// config/token-cache.yaml of version 1.0.0, which has all its settings with their defaults, without comments.
    private static let wholeFile = """
        listen:
          - 127.0.0.1:8080
        admin:
          listen:
            - 127.0.0.1:9090
          hosts: []
        data_directory: ./data
        sealing:
          enabled: on
          key_ring: ""
        store:
          url: ""
          connections: 2
          timeout: 5s
          durability: auto
          max_bytes: off
          queue:
            max_wait: 10s
        cache:
          max_bytes: 64 MiB
        retention:
          after_written: off
          after_expired: off
        loops: auto
        paths:
          - /token
          - /token.php
        json_bodies: off
        access:
          mode: open
          session:
            max_age: 90d
            idle_timeout: 30d
            per_user: 20
          api:
            keys_file: ""
          bearer:
            issuer: ""
            audience: []
            keys_file: ""
            algorithms:
              - RS256
              - ES256
              - EdDSA
            user_claim: sub
            in_unique_id: off
          header:
            name: ""
          certificate:
            name: san_uri
          failures: off
        https:
          mode: strict
          public_host: ""
        tls:
          certificate: []
          private_key: []
          client_ca: ""
        trusted_proxies:
          - 127.0.0.0/8
          - "::1"
          - unix
        drain_timeout: 10s
        log_level: info
        log_format: text
        access_log: off
        access_log_file: ""
        audit:
          file: ""
          key_file: ""
          events: changes
          required: on
        limits:
          request_line: 8 KiB
          head: 16 KiB
          body: 1 MiB
          buffers: 256 MiB
          connections: 10000
        timeouts:
          head: 10s
          body: 30s
          idle: 75s
        """

    private func load(_ yaml: String, environment: [String: String] = [:]) throws -> Settings {
        let path = folder.path + "/c.yaml"
        try yaml.write(toFile: path, atomically: true, encoding: .utf8)
        return try SettingsLoader(environment: environment, filePath: path).load()
    }

    @Test func `a file of version 1_0_0 starts a server, and each line that may go is warned of`() throws {
        let settings = try load(Self.wholeFile)
        #expect(settings.listing.replacing("store.timeout: 10s", with: "store.timeout: auto") == Settings().listing)
        #expect(settings.storeTimeout == .seconds(10) && settings.timeouts.head == .seconds(10))
        let lines = Self.wholeFile.split(separator: "\n").map { $0.split(separator: ":")[0].drop { $0 == " " } }
        #expect(settings.warnings.count == FormerSetting.all.count)
        for (former, warning) in zip(FormerSetting.all, settings.warnings) {
            let name = former.key.split(separator: ".").last
            let line = (lines.lastIndex { $0 == name } ?? -1) + 1
            // `timeouts.head` follows `limits.head`, which is still a setting.
            #expect(warning.hasPrefix("\(folder.path)/c.yaml, line \(line): \(former.key) is no setting any more: "))
            #expect(warning.hasSuffix(". Remove it"))
        }
    }

    #if PostgreSQL
    @Test func `with a database, its timeout counts and not that of the disk`() throws {
        let file = Self.wholeFile.replacing(#"url: """#, with: "url: postgresql://t@db/t")
        #expect(try load(file).storeTimeout == .seconds(5))
        #expect(try load("store: {url: postgresql://t@db/t}").storeTimeout == .seconds(5))
    }
    #endif

    @Test func `values are taken over where that is possible`() throws {
        let settings = try load(
            """
            admin: {listen: ["127.0.0.1:1", "[::1]:2?host=x.y"], hosts: [token-cache, a.example, b.example.]}
            store: {queue: {max_wait: 3s}}
            access: {bearer: {algorithms: [PS256]}, session: {per_user: 100}}
            timeouts: {head: 20s}
            access_log: json
            access_log_file: /var/log/a b.log
            """, environment: ["TOKEN_CACHE_LOOPS": "3", "TOKEN_CACHE_LIMITS_REQUEST_LINE": "64 KiB"])
        #expect(
            settings.admin.listen.map(\.description) == [
                "127.0.0.1:1?host=a.example&host=b.example.", "[::1]:2?host=x.y&host=a.example&host=b.example.",
            ])
        #expect(settings.storeTimeout == .seconds(3) && settings.timeouts.head == .seconds(20))
        #expect(settings.listing.contains("access_log: json /var/log/a b.log\n"))
        #expect(settings.warnings.contains { $0.hasPrefix("environment: TOKEN_CACHE_LOOPS is no setting any more") })
        #expect(settings.warnings.count == 8)
        // The new setting wins.
        #expect(try load("store: {timeout: 7s, queue: {max_wait: 3s}}").storeTimeout == .seconds(7))
        #expect(try load("timeouts: {body: 90s, head: 20s}").timeouts.body == .seconds(90))
        #expect(try load("timeouts: {head: 1h}").timeouts.head == .seconds(1_200))
        #expect(try load("{access_log: json /new, access_log_file: /old}").accessLog.file == "/new")
        let comma = ["TOKEN_CACHE_ACCESS_LOG": "json", "TOKEN_CACHE_ACCESS_LOG_FILE": "/a,b"]
        #expect(try load("", environment: comma).accessLog.file == "/a,b")
        #expect(try load("access_log_file: /old").listing.contains("access_log: off\n"))
    }

    @Test(arguments: [
        (
            "sealing: {enabled: off}",
            "sealing.enabled is no setting any more: tokens are always encrypted. If the store holds"
        ),
        ("access: {session: {per_user: 1}}", "DELETE /v1/users/USER/sessions"),
        ("access: {session: {per_user: 101}}", "a user may have 100 sessions"),
        ("store: {queue: {max_wait: soon}}", "store.timeout takes its place, also without store.url; remove it"),
        ("{access_log: json, access_log_file: ~/a.log}", "has ~ in it"), ("access_log: json  ~/a.log", "has ~ in it"),
        ("{access_log: json, access_log_file: [/a, /b]}", "the path is behind the format"),
        (#"{access_log: json, access_log_file: "/a\0b"}"#, "has a control character"),
        ("timeouts: {head: soon}", "it is a third of timeouts.body; remove it"),
        ("timeouts: {head: []}", "it is a third of timeouts.body; remove it"),
        ("store: {queue: {max_wait: []}}", "store.timeout takes its place, also without store.url; remove it"),
        // Beyond the limits of the settings that take their places.
        ("timeouts: {head: 3601s}", "it is a third of timeouts.body; remove it"),
        ("timeouts: {head: 3000000000d}", "it is a third of timeouts.body; remove it"),
        ("timeouts: {head: 0}", "it is a third of timeouts.body; remove it"),
        ("store: {queue: {max_wait: 2h}}", "store.timeout takes its place, also without store.url; remove it"),
        ("store: {queue: {max_wait: 0}}", "store.timeout takes its place, also without store.url; remove it"),
    ])
    func `a value is refused if ignoring it would weaken something, or it is none`(yaml: String, reason: String) {
        let error = #expect(throws: SettingsError.self) { try load(yaml) }
        #expect("\(error.map(String.init(describing:)) ?? "")".contains(reason))
    }
}
