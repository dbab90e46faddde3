import Testing

@testable import Operations

struct BackupRetentionTests {
    /// Monday, 2026-11-23, 00:00 in UTC.
    private let monday: Int64 = 1_795_392_000
    private let hour: Int64 = 3_600

    /// The hours before `monday` (0 is the newest) of the backups that a rule keeps, of those at the given hours.
    private func kept(_ rule: String, of hours: some Sequence<Int64>) throws -> [Int64] {
        let times = hours.map { monday - $0 * hour }
        let superfluous = try BackupRetention(rule).superfluous(of: times, newest: try #require(times.max()))
        return times.filter { !superfluous.contains($0) }.map { (monday - $0) / hour }.sorted()
    }

    @Test func `the last backup of each of the last hours, days and weeks is kept`() throws {
        // One in each hour of three weeks: the days end an hour before midnight, the weeks on Sunday.
        let hours: ClosedRange<Int64> = 0...(21 * 24)
        #expect(try kept("hourly=3", of: hours) == [0, 1, 2])
        #expect(try kept("daily=3", of: hours) == [0, 1, 25])
        #expect(try kept("weekly=3", of: hours) == [0, 1, 1 + 7 * 24])
        #expect(try kept("hourly=2,daily=3,weekly=2", of: hours) == [0, 1, 25])
        #expect(try kept("last=2", of: hours) == [0, 1])
    }

    @Test func `hours, days and weeks without a backup do not count`() throws {
        #expect(try kept("hourly=3", of: [0, 50, 100, 150]) == [0, 50, 100])
        #expect(try kept("daily=2", of: [0, 400, 900]) == [0, 400])
    }

    @Test func `of several backups in an hour the last one is kept`() throws {
        let times = [monday + 60, monday + 1_800, monday + 3_000]
        #expect(
            try BackupRetention("hourly=1").superfluous(of: times, newest: times[2]) == [times[0], times[1]])
    }

    @Test func `the backup that was just made is kept, and those from the future take no place`() throws {
        let times = [monday - hour, monday, monday + 24 * hour, monday + 48 * hour]
        #expect(try BackupRetention("last=1").superfluous(of: times, newest: monday) == [monday - hour])
    }

    @Test(arguments: [
        "", "hourly", "hourly=0", "hourly=-1", "hourly=x", "yearly=1", "hourly=1,", "hourly=1,hourly=2", "daily=100001",
    ])
    func `what is no rule is refused`(_ text: String) {
        #expect(throws: CommandFailure.self) { try BackupRetention(text) }
    }

    @Test func `names are those that are made here`() {
        #expect(BackupFolder.name(at: monday + 4_500) == "tokens-20261123T011500Z.db")
        #expect(BackupFolder.time(named: "tokens-20261123T011500Z.db") == monday + 4_500)
        for name in [
            "tokens.db", "tokens-20261123T011500Z.db.gz", "tokens-2026-11-23T01:15:00Z.db", "tokens-20261123T011500.db",
            "tokens-20261123T011500+0000.db", "tokens-20261332T011500Z.db", "old-tokens-20261123T011500Z.db",
            "tokens-.db",
        ] {
            #expect(BackupFolder.time(named: name) == nil, "\(name)")
        }
    }
}
