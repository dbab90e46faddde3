#if PostgreSQL
import Testing
import TokenStore

@testable import Settings

@Suite struct StoreSettingsTests {
    private static let url = "postgresql://token_cache@db1,db2/tokens?sslmode=verify-full"

    /// - Parameter values: By key.
    private func load(_ values: [String: String]) throws -> Settings {
        var environment: [String: String] = [:]
        for (key, value) in values {
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

    @Test func `the settings of the database are read`() throws {
        let store = try load([
            "store.url": Self.url, "store.connections": "7", "store.timeout": "250ms", "store.durability": "local",
        ]).store
        #expect(store.url == Self.url && store.connections == 7 && store.timeout == .milliseconds(250))
        #expect(store.durability == .local)
        #expect(try load(["store.url": Self.url, "store.durability": "synchronous"]).store.durability == .synchronous)
        let standard = try load(["store.url": Self.url, "store.durability": "auto"]).store
        #expect(standard.durability == nil && standard.connections == 2 && standard.timeout == nil)
        #expect(try load(["store.url": ""]).store.url.isEmpty)
    }

    @Test(
        arguments: [
            ("store.connections", "0"), ("store.connections", "65"), ("store.timeout", "99ms"),
            ("store.timeout", "3601s"),
            ("store.durability", "remote"), ("store.durability", ""),
        ]
    )
    func `a value out of range is refused`(key: String, value: String) {
        let text = fault([key: value, "store.url": Self.url])
        #expect(text.contains("is \"\(value)\"; allowed is "), "\(text)")
    }

    @Test(
        arguments: [
            ("store.max_bytes", "1 GiB", "tablespace"),
            ("cache.max_bytes", "5 MiB", "shared_buffers"),
        ]
    )
    func `a setting of SQLite is refused with a database, which has something in its place`(
        key: String, value: String, instead: String
    ) {
        let text = fault([key: value, "store.url": Self.url])
        #expect(text.hasPrefix("\(key) is \(value), and store.url is set: "), "\(text)")
        #expect(text.contains(instead) && text.contains("remove this setting"), "\(text)")
        #expect(fault([key: value]) == "accepted")
    }

    @Test(
        arguments: [
            ("store.connections", "3"), ("store.durability", "local"),
        ]
    )
    func `a setting of a database is refused without one`(key: String, value: String) {
        #expect(
            fault([key: value]) == """
                \(key) is \(value), and store.url is empty: it is for a PostgreSQL database, and tokens are stored with SQLite \
                in data_directory; set store.url as well, or remove this setting
                """
        )
    }

    @Test func `a file with all defaults, as a package installs it, goes with a database`() throws {
        var values = ["store.url": Self.url, "cache.max_bytes": "0", "store.max_bytes": "off"]
        #expect(try load(values).store.url == Self.url)
        values["cache.max_bytes"] = "64 MiB"
        #expect(try load(values).store.url == Self.url)
    }

    @Test func `the database changes at the next start alone`() throws {
        let change = SettingsChange(from: Settings(), to: try load(["store.url": Self.url]), takesTLS: false)
        #expect(change.settings.store.url.isEmpty)
        #expect(change.postponed == [#"store.url from "" to "\#(Self.url)""#])
    }
}
#endif
