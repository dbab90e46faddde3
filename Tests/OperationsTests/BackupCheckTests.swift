import Testing
import TokenStore

@testable import Operations

struct BackupCheckTests {
    private static let now: Int64 = 1_795_219_200

    @Test(
        arguments: [
            (nil, true, "no backup is recorded yet"),
            (1, true, "the last backup succeeded at 2026-11-20T"),
            // When the alert says so.
            (26, true, "the last backup succeeded at 2026-11-19T"),
            (27, false, "the last backup is older than a day: it ended at 2026-11-19T"),
            // A clock that was set back makes no backup old.
            (-5, true, "the last backup succeeded at 2026-11-21T"),
        ] as [(hours: Int64?, isFine: Bool, text: String)])
    func `a backup is old when the alert says so`(hours: Int64?, isFine: Bool, text: String) {
        let record = hours.map { hours in
            let end = Self.now - hours * 3_600
            return BackupRecord(isSuccessful: true, endTime: end, successTime: end)
        }
        let finding = BackupCheck.finding(record, now: Self.now)
        #expect((finding.state == .ok) == isFine && finding.text.hasPrefix(text), "\(finding)")
    }
}
