import HTTP
import Testing

@testable import Settings

@Suite struct SettingsChangeTests {
    /// Settings that differ from the defaults in one value.
    private func settings(_ key: String, _ value: String) throws -> Settings {
        try SettingsLoader(environment: [#require(Setting.all.first { $0.key == key }).environmentName: value]).load()
    }

    @Test func `a setting changes at once or at the next start, as its description says`() throws {
        let now = SettingsChange(from: Settings(), to: try settings("limits.body", "2 MiB"), takesTLS: false)
        #expect(now.settings.limits.body == 2 << 20)
        #expect(now.changes(\.limits.body) && !now.changes(\.limits.head))
        #expect(now.made == ["limits.body from 1 MiB to 2 MiB"] && now.postponed.isEmpty)
        let later = SettingsChange(from: Settings(), to: try settings("cache.max_bytes", "0"), takesTLS: false)
        #expect(later.settings.cacheLimit == 64 << 20)
        #expect(later.made.isEmpty && later.postponed == ["cache.max_bytes from 64 MiB to 0"])
    }

    @Test func `certificates change only where listeners have some, and never to none`() {
        var (running, wanted) = (Settings(), Settings())
        wanted.tls.certificates = ["b"]
        #expect(SettingsChange(from: running, to: wanted, takesTLS: false).settings.tls.certificates.isEmpty)
        running.tls.certificates = ["a"]
        #expect(SettingsChange(from: running, to: wanted, takesTLS: true).settings.tls.certificates == ["b"])
        #expect(SettingsChange(from: running, to: Settings(), takesTLS: true).settings.tls.certificates == ["a"])
    }
}
