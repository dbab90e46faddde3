import Testing

@testable import Settings

struct SettingsSourcesTests {
    private func setting(_ key: String) throws -> Setting {
        try #require(Setting.all.first { $0.key == key })
    }

    private func load(_ environment: [String: String]) throws -> SettingsLoader.Loaded {
        try SettingsLoader(flags: ["log_level": ["debug"]], environment: environment).loadWithOrigins()
    }

    @Test func `each setting has the place that its value comes from`() throws {
        let loaded = try load(["TOKEN_CACHE_LIMITS_BODY": "3 MiB"])
        var sources = SettingsSources()
        sources.update(from: loaded, inForce: loaded.settings)
        #expect(sources.origin(of: try setting("limits.body")) == "environment")
        #expect(sources.origin(of: try setting("log_level")) == "command line")
        #expect(sources.origin(of: try setting("limits.head")) == nil)
        #expect(sources.postponedValue(of: try setting("limits.body")) == nil)
    }

    @Test func `a value that waits for a restart is told beside the one in force, which keeps its place`() throws {
        let first = try load(["TOKEN_CACHE_CACHE_MAX_BYTES": "0"])
        var sources = SettingsSources()
        sources.update(from: first, inForce: first.settings)
        let second = try load([:])
        sources.update(from: second, inForce: first.settings)
        let cache = try setting("cache.max_bytes")
        #expect(sources.origin(of: cache) == "environment")
        #expect(sources.postponedValue(of: cache) == cache.show(second.settings))
        sources.update(from: second, inForce: second.settings)
        #expect(sources.origin(of: cache) == nil && sources.postponedValue(of: cache) == nil)
    }

    @Test(arguments: ["\0", "\t", "\n", "\u{7f}", "\u{85}", "\u{2028}", "\u{feff}", "\u{ffff}"])
    func `a value with a control character is refused wherever it stands, and not shown`(_ character: String) {
        let error = #expect(throws: SettingsError.self) {
            try load(["TOKEN_CACHE_LISTEN": "unix:/run/a\(character)b"])
        }
        #expect(error?.description.hasPrefix("environment: TOKEN_CACHE_LISTEN has a control character") == true)
    }

    @Test func `letters of any language are no control characters`() throws {
        let path = "/srv/té 数据 👩‍💻"
        #expect(try load(["TOKEN_CACHE_DATA_DIRECTORY": path]).settings.listing.contains(path))
    }
}
