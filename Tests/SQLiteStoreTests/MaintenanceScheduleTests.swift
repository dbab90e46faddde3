import Testing

@testable import SQLiteStore
@testable import TokenStore

/// What happens to a store, and what its schedule then says; each time is in milliseconds since its start.
private enum Line {
    case commit(at: Int)
    case checkpoint(complete: Bool, empties: Bool, at: Int)
    case lookAfterFiles(at: Int)
    case releasedPages(more: Bool)
    case attempt(MaintenanceSchedule.Step, at: Int)
    /// After that many bytes were to be copied, and so many were.
    case part(Int, copied: Int?, synchronizes: Bool)
    case wal(Int, isSynchronizing: Bool)
    case room(free: Int, file: Int)
    case retention(Retention, at: Int)
    case expiry(removed: Int, isDone: Bool, at: Int)
    /// What is due.
    case due(MaintenanceSchedule.Step?, at: Int, wal: Int = 0, isIdle: Bool = true)
    /// What is to be copied with the next commit.
    case copies(Bool?, wal: Int)
    case next(at: Int)
}

private let comfortable = MaintenanceSchedule.comfortableWAL
private let largest = MaintenanceSchedule.largestWAL
private let partSize = MaintenanceSchedule.partOfWAL
private let rest = MaintenanceSchedule.restOfWAL
private let written = Retention(sinceWritten: .seconds(100))

/// What a schedule says of a store that was just opened, and was then left alone for a moment.
private let settled: [Line] = [
    .checkpoint(complete: true, empties: true, at: 0), .lookAfterFiles(at: 0), .releasedPages(more: false),
]

private let histories: KeyValuePairs<String, (Retention, [Line])> = [
    "an idle store is left alone but for a look at its files every second": (
        Retention(),
        settled + [
            .due(nil, at: 999), .next(at: 1_000), .due(.lookAfterFiles, at: 1_000), .lookAfterFiles(at: 1_000),
            .due(nil, at: 1_999),
        ]
    ),
    "pages that an earlier run has left free are given back when nothing else is to be done": (
        Retention(),
        [
            .checkpoint(complete: true, empties: true, at: 0), .due(nil, at: 1, isIdle: false),
            .due(.releasePages, at: 1), .releasedPages(more: false), .due(nil, at: 1),
        ]
    ),
    "a step of which nothing is known but that it was tried is not due again at once": (
        written,
        [
            .checkpoint(complete: true, empties: true, at: 0), .due(.lookAfterFiles, at: 1_000),
            .attempt(.lookAfterFiles, at: 1_000), .due(.expire, at: 1_000), .attempt(.expire, at: 1_000),
            .due(.releasePages, at: 1_000), .attempt(.releasePages, at: 1_000), .due(nil, at: 1_000),
        ]
    ),
    "what an earlier run has left in the WAL is moved soon": (
        Retention(), [.due(.checkpoint(empties: true), at: 1_000, wal: 5_000)]
    ),
    "the WAL is moved a second after the last commit, not during a pause between two": (
        Retention(),
        settled + [
            .commit(at: 100), .due(nil, at: 900, wal: 5_000), .commit(at: 900), .next(at: 1_000),
            .due(.checkpoint(empties: true), at: 1_900, wal: 5_000), .due(.lookAfterFiles, at: 1_899, wal: 5_000),
            .due(.lookAfterFiles, at: 1_900, wal: 5_000, isIdle: false),
        ]
    ),
    "each part of a growing WAL is copied once, also what readers have held up, and the whole is synced at last": (
        Retention(),
        settled + [
            .copies(nil, wal: partSize - 1), .copies(false, wal: partSize),
            .part(partSize, copied: 0, synchronizes: false), .copies(nil, wal: 2 * partSize - 1),
            .copies(false, wal: 2 * partSize), .part(2 * partSize, copied: nil, synchronizes: false),
            .copies(true, wal: comfortable), .part(comfortable, copied: comfortable, synchronizes: true),
            .wal(comfortable, isSynchronizing: true), .copies(nil, wal: largest - 1),
            .due(nil, at: 10, wal: largest - 1), .wal(comfortable, isSynchronizing: false),
            .due(.checkpoint(empties: false), at: 10, wal: comfortable, isIdle: false),
            .checkpoint(complete: true, empties: false, at: 10), .copies(false, wal: partSize),
            .part(partSize, copied: partSize, synchronizes: false), .copies(nil, wal: partSize),
            // It has begun anew by itself.
            .wal(4_096, isSynchronizing: false), .copies(false, wal: partSize),
        ]
    ),
    "a WAL that has grown since its sync is synced until little of it is left": (
        Retention(),
        settled + [
            .part(comfortable, copied: comfortable, synchronizes: true),
            .wal(comfortable + rest, isSynchronizing: false), .copies(true, wal: comfortable + rest),
            .due(nil, at: 10, wal: comfortable + rest),
            .part(comfortable + rest, copied: comfortable + 1, synchronizes: true),
            .wal(comfortable + rest, isSynchronizing: false),
            .due(.checkpoint(empties: false), at: 10, wal: comfortable + rest, isIdle: false),
            // Readers have held it up.
            .checkpoint(complete: false, empties: false, at: 20), .copies(nil, wal: comfortable + rest),
            .due(nil, at: 119, wal: comfortable + rest),
            .due(.checkpoint(empties: false), at: 120, wal: comfortable + rest, isIdle: false),
        ]
    ),
    "what could not be copied that far is copied once more, what could not be held at all is not": (
        Retention(),
        settled + [
            .part(comfortable, copied: 0, synchronizes: true), .wal(comfortable, isSynchronizing: false),
            .copies(true, wal: comfortable), .part(comfortable, copied: nil, synchronizes: true),
            .wal(comfortable, isSynchronizing: false), .copies(nil, wal: comfortable),
            .due(.checkpoint(empties: false), at: 10, wal: comfortable),
        ]
    ),
    "a very large WAL is moved at once, whatever is being synced": (
        Retention(),
        settled + [
            .due(.checkpoint(empties: false), at: 10, wal: largest, isIdle: false),
            .part(largest / 2, copied: largest / 2, synchronizes: true), .wal(largest, isSynchronizing: true),
            .due(.checkpoint(empties: false), at: 10, wal: largest, isIdle: false),
            .checkpoint(complete: true, empties: false, at: 20), .copies(true, wal: comfortable),
        ]
    ),
    "a WAL for which its disk has no more room is moved and truncated at once, whatever is being synced": (
        Retention(),
        settled + [
            .room(free: 3 << 20, file: 1 << 20), .due(nil, at: 10, wal: 2 << 20 - 1, isIdle: false),
            .due(.checkpoint(empties: true), at: 10, wal: 2 << 20, isIdle: false),
            .part(1 << 20, copied: 1 << 20, synchronizes: true),
            .due(.checkpoint(empties: true), at: 10, wal: 2 << 20, isIdle: false),
            // Readers that hold it up are not waited for again at once.
            .checkpoint(complete: false, empties: true, at: 10), .due(nil, at: 11, wal: 2 << 20, isIdle: false),
            // Somebody has made room.
            .room(free: 1 << 30, file: 2 << 20), .due(.lookAfterFiles, at: 1_000, wal: 2 << 20, isIdle: false),
        ]
    ),
    "no checkpoint of a quiet time waits for a sync": (
        Retention(),
        settled + [
            .commit(at: 10), .part(comfortable, copied: comfortable, synchronizes: true),
            .wal(comfortable, isSynchronizing: true), .lookAfterFiles(at: 900), .due(nil, at: 1_010, wal: comfortable),
            .next(at: 1_900), .wal(comfortable, isSynchronizing: false), .next(at: 1_010),
            .due(.checkpoint(empties: true), at: 1_010, wal: comfortable),
        ]
    ),
    "under load the WAL is written over and over, and cut to nothing once a minute": (
        Retention(),
        settled + [
            .commit(at: 10), .checkpoint(complete: true, empties: false, at: 20),
            // What was moved can still be read in it: a second later that is over, if nothing else comes.
            .due(.checkpoint(empties: true), at: 1_020), .commit(at: 60_009),
            .due(.checkpoint(empties: false), at: 60_009, wal: largest),
            .due(.checkpoint(empties: true), at: 60_010, wal: largest),
            .due(.checkpoint(empties: true), at: 60_010, wal: largest, isIdle: false),
            .checkpoint(complete: true, empties: true, at: 60_010), .commit(at: 60_011),
            .due(.checkpoint(empties: false), at: 60_011, wal: largest),
        ]
    ),
    "replaced values leave the WAL in a minute, also when there is always another commit before it is quiet": (
        Retention(),
        settled + [.commit(at: 900), .lookAfterFiles(at: 60_500), .commit(at: 60_500)] + [
            .next(at: 60_900), .due(nil, at: 60_899, wal: 5_000),
            .due(.checkpoint(empties: true), at: 60_900, wal: 5_000),
            // A first commit after a long time is no old one.
            .checkpoint(complete: true, empties: true, at: 60_900), .lookAfterFiles(at: 600_000),
            .commit(at: 600_000), .due(nil, at: 600_000, wal: 5_000),
        ]
    ),
    "while readers hold checkpoints up, the pauses between them grow, and are short again afterwards": (
        Retention(),
        settled + [.commit(at: 10)]
            + [(20, 100), (120, 200), (320, 400), (720, 800), (1_520, 1_600), (3_120, 3_000), (6_120, 3_000)].flatMap {
                (now, pause) -> [Line] in
                [
                    .checkpoint(complete: false, empties: false, at: now), .lookAfterFiles(at: now + pause),
                    .due(nil, at: now + pause - 1, wal: 1 << 30, isIdle: false),
                    .due(.checkpoint(empties: false), at: now + pause, wal: 1 << 30, isIdle: false),
                ]
            } + [
                .checkpoint(complete: true, empties: false, at: 9_120),
                .checkpoint(complete: false, empties: false, at: 9_120),
                .due(.checkpoint(empties: false), at: 9_220, wal: 1 << 30, isIdle: false),
            ]
    ),
    "what was dropped is moved out of the WAL when nothing more is to be dropped, and pages given back": (
        written,
        settled + [
            .due(.expire, at: 0), .expiry(removed: 256, isDone: false, at: 1), .due(.expire, at: 1, isIdle: false),
            .expiry(removed: 3, isDone: true, at: 2), .due(.checkpoint(empties: true), at: 2, wal: 5_000),
            .checkpoint(complete: true, empties: true, at: 3), .due(.releasePages, at: 3),
            .due(nil, at: 3, isIdle: false), .releasedPages(more: false), .due(nil, at: 3), .lookAfterFiles(at: 9_500),
            // A tenth of the time that tokens are kept.
            .due(nil, at: 10_001), .due(.expire, at: 10_002),
        ]
    ),
    "another retention is gone by at once, the same one changes nothing": (
        Retention(),
        settled + [
            .lookAfterFiles(at: 100_000), .due(nil, at: 10), .retention(written, at: 10), .due(.expire, at: 10),
            .expiry(removed: 0, isDone: true, at: 20), .retention(written, at: 30), .due(nil, at: 10_019),
            .due(.expire, at: 10_020), .retention(Retention(), at: 10_020), .due(nil, at: 90_000),
        ]
    ),
]

@Suite struct MaintenanceScheduleTests {
    @Test(arguments: histories.map(\.key)) func `what is due`(_ name: String) throws {
        let (retention, lines) = try #require(histories.first { $0.key == name }).value
        let start = ContinuousClock.now
        func moment(_ milliseconds: Int) -> ContinuousClock.Instant { start + .milliseconds(milliseconds) }
        var schedule = MaintenanceSchedule(retention: retention, at: start)
        for line in lines {
            switch line {
            case .commit(let time): schedule.noteCommit(at: moment(time))
            case .checkpoint(let complete, let empties, let time):
                schedule.noteCheckpoint(isComplete: complete, empties: empties, at: moment(time))
            case .lookAfterFiles(let time): schedule.noteLookAfterFiles(at: moment(time))
            case .releasedPages(let more): schedule.noteReleasedPages(more: more, at: start)
            case .attempt(let step, let time): schedule.noteAttempt(step, at: moment(time))
            case .part(let size, let copied, let synchronizes):
                schedule.notePart(walSize: size, checkpointed: copied, synchronizes: synchronizes)
            case .wal(let size, let isSynchronizing): schedule.noteWAL(size: size, isSynchronizing: isSynchronizing)
            case .room(let free, let file): schedule.noteRoom(WALRoom(free: free, file: file))
            case .retention(let retention, let time): schedule.noteRetention(retention, at: moment(time))
            case .expiry(let removed, let isDone, let time):
                schedule.noteExpiry(removed: removed, isDone: isDone, at: moment(time))
            case .due(let expected, let time, let wal, let isIdle):
                #expect(schedule.due(at: moment(time), walSize: wal, isIdle: isIdle) == expected, "\(line)")
            case .copies(let expected, let wal): #expect(schedule.part(walSize: wal) == expected, "\(line)")
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
        #expect(limit <= 256 << 10 || limit <= free - growth)
        // And takes all that it can.
        #expect(limit == 256 << 10 || limit + 1 > free - max(0, limit + 1 - file))
        #expect(WALRoom(free: nil, file: file).limit == .max)
    }

    @Test(
        "tokens are looked through often enough for the time they are kept, and at most once a minute",
        arguments: [(Duration.seconds(1), 100), (.seconds(30), 3_000), (.seconds(86_400), 60_000)]
    )
    func expiryInterval(_ kept: Duration, _ milliseconds: Int) {
        let interval = Retention(sinceExpired: kept).deletionInterval(hasSessions: false)
        #expect(interval == .milliseconds(milliseconds))
    }
}
