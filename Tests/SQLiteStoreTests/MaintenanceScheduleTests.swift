import Testing

@testable import SQLiteStore
@testable import TokenStore

/// What happens to a store, and what its schedule then says; each time is in milliseconds since its start.
private enum Line {
    case commit(at: Int)
    case checkpoint(complete: Bool, empties: Bool, at: Int)
    case lookAfterFiles(at: Int)
    /// That many bytes of the WAL are copied.
    case prepared(Int)
    case wal(Int, isSynchronizing: Bool)
    case room(free: Int, file: Int)
    /// What is due.
    case due(MaintenanceSchedule.Step?, at: Int, wal: Int = 0, isIdle: Bool = true)
    case next(at: Int)
}

private let comfortable = MaintenanceSchedule.comfortableWAL
private let largest = MaintenanceSchedule.largestWAL
private let rest = MaintenanceSchedule.restOfWAL

/// The beginning of a store that was just opened and has checkpointed its WAL.
private let settled: [Line] = [
    .checkpoint(complete: true, empties: true, at: 0), .lookAfterFiles(at: 0),
]

private let histories: KeyValuePairs<String, [Line]> = [
    "an idle store is left alone but for a look at its files every second": settled + [
        .due(nil, at: 999), .next(at: 1_000), .due(.lookAfterFiles, at: 1_000), .lookAfterFiles(at: 1_000),
        .due(nil, at: 1_999),
    ],
    "a WAL that an earlier run has left is checkpointed soon": [
        .due(.checkpoint(empties: true), at: 1_000, wal: 5_000)
    ],
    "the WAL is checkpointed a second after the last commit, not in a shorter pause": settled + [
        .commit(at: 100), .due(nil, at: 900, wal: 5_000), .commit(at: 900), .next(at: 1_000),
        .due(.checkpoint(empties: true), at: 1_900, wal: 5_000), .due(.lookAfterFiles, at: 1_899, wal: 5_000),
        .due(.lookAfterFiles, at: 1_900, wal: 5_000, isIdle: false),
    ],
    "a growing WAL is copied and synced in the background, and then checkpointed": settled + [
        .due(nil, at: 10, wal: comfortable - 1, isIdle: false),
        .due(.prepareCheckpoint, at: 10, wal: comfortable, isIdle: false), .prepared(comfortable),
        .wal(comfortable, isSynchronizing: true), .due(nil, at: 10, wal: largest - 1),
        .wal(comfortable, isSynchronizing: false),
        .due(.checkpoint(empties: false), at: 10, wal: comfortable + rest - 1, isIdle: false),
        .checkpoint(complete: true, empties: false, at: 10), .due(nil, at: 10, wal: comfortable - 1, isIdle: false),
        .due(.prepareCheckpoint, at: 10, wal: comfortable), .prepared(comfortable),
        // SQLite has restarted the WAL by itself.
        .wal(4_096, isSynchronizing: false), .due(.prepareCheckpoint, at: 10, wal: comfortable),
    ],
    "a WAL that has grown since its sync is synced until little of it is left": settled + [
        .prepared(comfortable), .wal(comfortable + rest, isSynchronizing: false),
        .due(.prepareCheckpoint, at: 10, wal: comfortable + rest), .prepared(comfortable + rest),
        .due(.checkpoint(empties: false), at: 10, wal: comfortable + rest, isIdle: false),
        // Readers have held it up.
        .checkpoint(complete: false, empties: false, at: 20),
        .lookAfterFiles(at: 1_000), .due(nil, at: 1_019, wal: comfortable + rest),
        .due(.checkpoint(empties: false), at: 1_020, wal: comfortable + rest, isIdle: false),
    ],
    "a very large WAL is checkpointed at once, even during a sync": settled + [
        .due(.checkpoint(empties: false), at: 10, wal: largest, isIdle: false),
        .prepared(largest / 2), .wal(largest, isSynchronizing: true),
        .due(.checkpoint(empties: false), at: 10, wal: largest, isIdle: false),
    ],
    "a WAL that has taken its share of the disk's room is checkpointed and truncated at once, even during a sync":
        settled + [
            .room(free: 3 << 20, file: 1 << 20), .due(nil, at: 10, wal: 2 << 20 - 1, isIdle: false),
            .due(.checkpoint(empties: true), at: 10, wal: 2 << 20, isIdle: false),
            .prepared(1 << 20), .wal(2 << 20, isSynchronizing: true),
            .due(.checkpoint(empties: true), at: 10, wal: 2 << 20, isIdle: false),
            // Readers that hold it up are not waited for again at once.
            .checkpoint(complete: false, empties: true, at: 10), .due(nil, at: 11, wal: 2 << 20, isIdle: false),
            // The disk has room again.
            .room(free: 1 << 30, file: 2 << 20), .due(.lookAfterFiles, at: 1_000, wal: 2 << 20, isIdle: false),
        ],
    "no checkpoint of a quiet time waits for a sync": settled + [
        .commit(at: 10), .prepared(comfortable), .wal(comfortable, isSynchronizing: true), .lookAfterFiles(at: 900),
        .due(nil, at: 1_010, wal: comfortable),
        .next(at: 1_900), .wal(comfortable, isSynchronizing: false), .next(at: 1_010),
        .due(.checkpoint(empties: true), at: 1_010, wal: comfortable),
    ],
    "under load the WAL is overwritten again and again, and truncated once a minute": settled + [
        .commit(at: 10), .checkpoint(complete: true, empties: false, at: 20),
        // Checkpointed values can still be read in the WAL: it is truncated a second later if no other commit
        // comes.
        .due(.checkpoint(empties: true), at: 1_020), .commit(at: 60_009),
        .due(.checkpoint(empties: false), at: 60_009, wal: largest),
        .due(.checkpoint(empties: true), at: 60_010, wal: largest),
        .due(.checkpoint(empties: true), at: 60_010, wal: largest, isIdle: false),
        .checkpoint(complete: true, empties: true, at: 60_010), .commit(at: 60_011),
        .due(.checkpoint(empties: false), at: 60_011, wal: largest),
    ],
    "replaced values leave the WAL in a minute, even if each quiet time ends with another commit": settled + [
        .commit(at: 900), .lookAfterFiles(at: 60_500), .commit(at: 60_500),
    ] + [
        .next(at: 60_900), .due(nil, at: 60_899, wal: 5_000),
        .due(.checkpoint(empties: true), at: 60_900, wal: 5_000),
        // The time counts from this commit, not from the last truncation.
        .checkpoint(complete: true, empties: true, at: 60_900), .lookAfterFiles(at: 600_000),
        .commit(at: 600_000), .due(nil, at: 600_000, wal: 5_000),
    ],
    "while readers hold checkpoints up, there is a second between two": settled + [
        .checkpoint(complete: false, empties: false, at: 20), .due(nil, at: 999, wal: 1 << 30, isIdle: false),
        .lookAfterFiles(at: 1_000), .due(nil, at: 1_019, wal: 1 << 30, isIdle: false),
        .due(.checkpoint(empties: false), at: 1_020, wal: 1 << 30, isIdle: false),
    ],
]

@Suite struct MaintenanceScheduleTests {
    @Test(arguments: histories.map(\.key)) func `what is due`(_ name: String) throws {
        let lines = try #require(histories.first { $0.key == name }).value
        let start = ContinuousClock.now
        func moment(_ milliseconds: Int) -> ContinuousClock.Instant { start + .milliseconds(milliseconds) }
        var schedule = MaintenanceSchedule(at: start)
        for line in lines {
            switch line {
            case .commit(let time): schedule.noteCommit(at: moment(time))
            case .checkpoint(let complete, let empties, let time):
                schedule.noteCheckpoint(isComplete: complete, empties: empties, at: moment(time))
            case .lookAfterFiles(let time): schedule.noteLook(at: moment(time))
            case .prepared(let size): schedule.notePreparation(walSize: size)
            case .wal(let size, let isSynchronizing): schedule.noteWAL(size: size, isSynchronizing: isSynchronizing)
            case .room(let free, let file): schedule.noteRoom(WALRoom(free: free, file: file))
            case .due(let expected, let time, let wal, let isIdle):
                #expect(schedule.due(at: moment(time), walSize: wal, isIdle: isIdle) == expected, "\(line)")
            case .next(let time): #expect(schedule.next == moment(time), "\(line)")
            }
        }
    }

    @Test(
        "the WAL leaves as much free as the database may need for it",
        arguments: [0, 1, 300_000, 1 << 20, 5_000_000, 1 << 40, .max], [0, 1, 400_000, 3 << 20, 1 << 30])
    func roomOfWAL(free: Int, file: Int) {
        let limit = WALRoom(free: free, file: file).limit
        let growth = max(0, limit - file)
        #expect(limit <= WALRoom.least || limit <= free - growth)
        // The limit is not smaller than necessary.
        #expect(limit == WALRoom.least || limit + 1 > free - max(0, limit + 1 - file))
        #expect(WALRoom(free: nil, file: file).limit == .max)
    }
}
