import Testing
import TokenStore

@testable import Operations

/// Findings of the doctor about backups that a test of the built server would have to wait for.
struct BackupCheckTests {
    private static let now: Int64 = 1_795_219_200
    private static let hour: Int64 = 3_600

    private func warnings(_ record: BackupRecord?, serverAge: Int64? = nil) -> [String] {
        BackupCheck(record: record, serverAge: serverAge, now: Self.now).findings.filter { $0.state != .ok }.map(\.text)
    }

    private func success(hoursAgo hours: Int64) -> BackupRecord {
        let end = Self.now - hours * Self.hour
        return BackupRecord(isSuccessful: true, endTime: end, successTime: end)
    }

    @Test func `a backup is old when the alert says so, after 26 hours`() {
        #expect(warnings(success(hoursAgo: 26)).isEmpty)
        #expect(warnings(success(hoursAgo: 27)).map { $0.hasPrefix("the last backup is 27 hours old") } == [true])
        #expect(warnings(success(hoursAgo: 72)).map { $0.hasPrefix("the last backup is 3 days old") } == [true])
    }

    @Test func `a server that has run for 26 hours without a backup is a warning, as for the alert`() {
        #expect(warnings(nil).isEmpty)
        #expect(warnings(nil, serverAge: 26 * Self.hour).isEmpty)
        #expect(warnings(nil, serverAge: 50 * Self.hour).map { $0.contains("has run for 50 hours") } == [true])
        #expect(warnings(success(hoursAgo: 1), serverAge: 50 * Self.hour).isEmpty)
    }

    @Test func `a clock that was set back makes no backup old`() {
        #expect(warnings(success(hoursAgo: -5)).isEmpty)
    }
}
