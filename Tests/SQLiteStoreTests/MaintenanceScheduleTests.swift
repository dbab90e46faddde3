import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct MaintenanceScheduleTests {
    private let start = ContinuousClock.now

    private func step(
        _ schedule: MaintenanceSchedule, at milliseconds: Int, wal: Int = 0, isIdle: Bool = true
    ) -> MaintenanceSchedule.Step? {
        schedule.due(at: start + .milliseconds(milliseconds), walSize: wal, isIdle: isIdle)
    }

    private func noted(_ milliseconds: Int) -> ContinuousClock.Instant { start + .milliseconds(milliseconds) }

    /// One whose first checkpoint and first look at the files are over.
    private func settled(_ retention: Retention = Retention()) -> MaintenanceSchedule {
        var schedule = MaintenanceSchedule(retention: retention, at: start)
        schedule.noteCheckpoint(isComplete: true, empties: true, at: start)
        schedule.noteLookAfterFiles(at: start)
        schedule.noteReleasedPages(more: false, at: start)
        return schedule
    }

    @Test("an idle store is left alone but for a look at its files every second")
    func idle() {
        var schedule = settled()
        #expect(step(schedule, at: 999) == nil)
        #expect(schedule.next == noted(1_000))
        #expect(step(schedule, at: 1_000) == .lookAfterFiles)
        schedule.noteLookAfterFiles(at: noted(1_000))
        #expect(step(schedule, at: 1_999) == nil)
    }

    @Test("pages that an earlier run has left free are given back as soon as nothing else is to be done")
    func leftPages() {
        var schedule = MaintenanceSchedule(retention: Retention(), at: start)
        schedule.noteCheckpoint(isComplete: true, empties: true, at: start)
        #expect(step(schedule, at: 1, isIdle: false) == nil)
        #expect(step(schedule, at: 1) == .releasePages)
        schedule.noteReleasedPages(more: false, at: start)
        #expect(step(schedule, at: 1) == nil)
    }

    @Test("a step of which nothing is known but that it was tried is not due again at once")
    func attempts() {
        var schedule = MaintenanceSchedule(retention: Retention(sinceWritten: .seconds(100)), at: start)
        schedule.noteCheckpoint(isComplete: true, empties: true, at: start)
        let wal = MaintenanceSchedule.comfortableWAL
        let expected: [(MaintenanceSchedule.Step?, walSize: Int)] = [
            (.holdWAL, wal), (.checkpointHeldWAL(synchronizes: true), wal + 4_096),
            // With less in the WAL, nothing of it is due.
            (.lookAfterFiles, 0), (.expire, 0), (.releasePages, 0), (nil, 0),
        ]
        for (expected, walSize) in expected {
            schedule.noteWAL(size: walSize, isSynchronizing: false)
            #expect(step(schedule, at: 1_000, wal: walSize) == expected)
            if let expected { schedule.noteAttempt(expected, walSize: walSize, at: noted(1_000)) }
        }
    }

    @Test("what an earlier run has left in the WAL is moved soon")
    func leftovers() {
        let schedule = MaintenanceSchedule(retention: Retention(), at: start)
        #expect(step(schedule, at: 1_000, wal: 5_000) == .checkpoint(empties: true))
    }

    @Test("the WAL is moved a second after the last commit, not during a pause between two")
    func quiet() {
        var schedule = settled()
        schedule.noteCommit(at: noted(100))
        #expect(step(schedule, at: 900, wal: 5_000) == nil)
        schedule.noteCommit(at: noted(900))
        #expect(schedule.next == noted(1_000))
        #expect(step(schedule, at: 1_900, wal: 5_000) == .checkpoint(empties: true))
        #expect(step(schedule, at: 1_899, wal: 5_000) == .lookAfterFiles)
        #expect(step(schedule, at: 1_900, wal: 5_000, isIdle: false) == .lookAfterFiles)
    }

    /// Copies a part of a WAL of this size, and commits meanwhile.
    private func copyPart(_ schedule: inout MaintenanceSchedule, wal: Int, copied: Int?) {
        #expect(step(schedule, at: 10, wal: wal - 1, isIdle: false) == nil)
        #expect(step(schedule, at: 10, wal: wal, isIdle: false) == .holdWAL)
        schedule.noteHold(walSize: wal)
        let grown = wal + 4_096
        schedule.noteWAL(size: grown, isSynchronizing: false)
        #expect(step(schedule, at: 10, wal: grown, isIdle: false) == .checkpointHeldWAL(synchronizes: false))
        schedule.noteHeldCheckpoint(checkpointed: copied, synchronizes: false)
        schedule.noteWAL(size: grown, isSynchronizing: false)
        #expect(step(schedule, at: 10, wal: grown, isIdle: false) == nil)
    }

    /// Moves a WAL of this size ahead, and commits meanwhile.
    private func checkpointHeldWAL(_ schedule: inout MaintenanceSchedule, wal: Int, at milliseconds: Int) {
        #expect(step(schedule, at: milliseconds, wal: wal, isIdle: false) == .holdWAL)
        schedule.noteHold(walSize: wal)
        // Only what came before another commit can be moved.
        schedule.noteWAL(size: wal, isSynchronizing: false)
        #expect(step(schedule, at: milliseconds, wal: wal) == nil)
        let grown = wal + 4_096
        schedule.noteWAL(size: grown, isSynchronizing: false)
        #expect(step(schedule, at: milliseconds, wal: grown, isIdle: false) == .checkpointHeldWAL(synchronizes: true))
        schedule.noteHeldCheckpoint(checkpointed: wal, synchronizes: true)
        schedule.noteWAL(size: grown, isSynchronizing: true)
        #expect(step(schedule, at: milliseconds, wal: grown) == nil)
        #expect(step(schedule, at: milliseconds, wal: MaintenanceSchedule.largestWAL - 1) == nil)
        schedule.noteWAL(size: grown, isSynchronizing: false)
    }

    @Test(
        "each part of a growing WAL is copied once, and the whole is synced at last",
        arguments: [1 << 30, 0, nil] as [Int?]
    )
    func parts(copied: Int?) {
        var schedule = settled()
        let part = MaintenanceSchedule.partOfWAL
        for wal in stride(from: part, to: MaintenanceSchedule.comfortableWAL, by: part) {
            copyPart(&schedule, wal: wal, copied: copied.map { min($0, wal) })
        }
        let wal = MaintenanceSchedule.comfortableWAL
        checkpointHeldWAL(&schedule, wal: wal, at: 10)
        #expect(step(schedule, at: 10, wal: wal + 4_096, isIdle: false) == .checkpoint(empties: false))
        schedule.noteCheckpoint(isComplete: true, empties: false, at: noted(10))
        copyPart(&schedule, wal: part, copied: part)
        // The WAL has begun anew by itself.
        schedule.noteWAL(size: 4_096, isSynchronizing: false)
        copyPart(&schedule, wal: part, copied: part)
    }

    @Test("a larger WAL is moved ahead until little of it is left, and then at once")
    func growth() {
        var schedule = settled()
        var wal = MaintenanceSchedule.comfortableWAL
        checkpointHeldWAL(&schedule, wal: wal, at: 10)
        wal += MaintenanceSchedule.restOfWAL
        checkpointHeldWAL(&schedule, wal: wal, at: 20)
        wal += MaintenanceSchedule.restOfWAL - 1
        #expect(step(schedule, at: 20, wal: wal, isIdle: false) == .checkpoint(empties: false))
        schedule.noteCheckpoint(isComplete: true, empties: false, at: noted(20))
        checkpointHeldWAL(&schedule, wal: MaintenanceSchedule.comfortableWAL, at: 30)
    }

    @Test("what could not be moved that far is moved ahead once more, what could not be held at all is not")
    func shortMove() {
        var schedule = settled()
        let wal = MaintenanceSchedule.comfortableWAL
        for (moved, next) in [(0, .holdWAL), (nil, .checkpoint(empties: false))] as [(Int?, MaintenanceSchedule.Step)] {
            schedule.noteHold(walSize: wal)
            schedule.noteHeldCheckpoint(checkpointed: moved, synchronizes: true)
            schedule.noteWAL(size: wal, isSynchronizing: false)
            #expect(step(schedule, at: 10, wal: wal) == next)
        }
    }

    @Test("a WAL that has begun anew by itself, or after a fault, is moved ahead as any other")
    func begunAnew() {
        var schedule = settled()
        checkpointHeldWAL(&schedule, wal: MaintenanceSchedule.comfortableWAL, at: 10)
        schedule.noteCheckpoint(isComplete: false, empties: false, at: noted(10))
        schedule.noteWAL(size: 4_096, isSynchronizing: false)
        checkpointHeldWAL(&schedule, wal: MaintenanceSchedule.comfortableWAL, at: 20)
    }

    @Test("a very large WAL is moved at once, whatever is being done ahead")
    func largest() {
        let wal = MaintenanceSchedule.largestWAL
        var schedule = settled()
        #expect(step(schedule, at: 10, wal: wal, isIdle: false) == .checkpoint(empties: false))
        schedule.noteHold(walSize: wal / 2)
        #expect(step(schedule, at: 10, wal: wal, isIdle: false) == .checkpoint(empties: false))
        schedule.noteWAL(size: wal, isSynchronizing: false)
        schedule.noteHeldCheckpoint(checkpointed: wal / 2, synchronizes: true)
        schedule.noteWAL(size: wal, isSynchronizing: true)
        #expect(step(schedule, at: 10, wal: wal, isIdle: false) == .checkpoint(empties: false))
        // Which ends it.
        schedule.noteCheckpoint(isComplete: true, empties: false, at: noted(20))
        checkpointHeldWAL(&schedule, wal: MaintenanceSchedule.comfortableWAL, at: 20)
    }

    @Test("a WAL for which its disk has no more room is moved and truncated at once, whatever is being done ahead")
    func nearlyFullDisk() {
        let (mebibyte, wal) = (1 << 20, MaintenanceSchedule.comfortableWAL)
        var schedule = settled()
        schedule.noteRoom(WALRoom(free: 3 * mebibyte, file: mebibyte))
        #expect(step(schedule, at: 10, wal: 2 * mebibyte - 1, isIdle: false) == nil)
        #expect(step(schedule, at: 10, wal: 2 * mebibyte, isIdle: false) == .checkpoint(empties: true))
        schedule.noteHold(walSize: mebibyte)
        schedule.noteHeldCheckpoint(checkpointed: mebibyte, synchronizes: true)
        #expect(step(schedule, at: 10, wal: 2 * mebibyte, isIdle: false) == .checkpoint(empties: true))
        // Readers that hold it up are not waited for again at once.
        schedule.noteCheckpoint(isComplete: false, empties: true, at: noted(10))
        #expect(step(schedule, at: 11, wal: 2 * mebibyte, isIdle: false) == nil)
        // Somebody has made room.
        schedule.noteRoom(WALRoom(free: 1 << 30, file: 2 * mebibyte))
        #expect(step(schedule, at: 1_000, wal: 2 * mebibyte, isIdle: false) == .lookAfterFiles)
        checkpointHeldWAL(&schedule, wal: wal, at: 20)
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

    @Test("what is held is let go by the checkpoint of a quiet time, and not moved ahead afterwards")
    func quietAfterHold() {
        var schedule = settled()
        schedule.noteCommit(at: noted(10))
        schedule.noteHold(walSize: MaintenanceSchedule.comfortableWAL)
        #expect(step(schedule, at: 1_010, wal: MaintenanceSchedule.comfortableWAL) == .checkpoint(empties: true))
        schedule.noteCheckpoint(isComplete: true, empties: true, at: noted(1_010))
        schedule.noteLookAfterFiles(at: noted(1_010))
        schedule.noteCommit(at: noted(1_020))
        schedule.noteWAL(size: 5_000, isSynchronizing: false)
        #expect(step(schedule, at: 1_020, wal: 5_000) == nil)
    }

    @Test("no checkpoint of a quiet time waits for the sync of what was moved ahead")
    func quietWhileSynchronizing() {
        var schedule = settled()
        let wal = MaintenanceSchedule.comfortableWAL
        schedule.noteHold(walSize: wal)
        schedule.noteCommit(at: noted(10))
        schedule.noteHeldCheckpoint(checkpointed: wal, synchronizes: true)
        schedule.noteWAL(size: wal, isSynchronizing: true)
        schedule.noteLookAfterFiles(at: noted(900))
        #expect(step(schedule, at: 1_010, wal: wal) == nil)
        #expect(schedule.next == noted(1_900))
        schedule.noteWAL(size: wal, isSynchronizing: false)
        #expect(schedule.next == noted(1_010))
        #expect(step(schedule, at: 1_010, wal: wal) == .checkpoint(empties: true))
    }

    @Test("under load the WAL is written over and over, and cut to nothing once a minute")
    func rewriting() {
        var schedule = settled()
        schedule.noteCommit(at: noted(10))
        schedule.noteCheckpoint(isComplete: true, empties: false, at: noted(20))
        // What was moved can still be read in it: a second later that is over, if nothing else comes.
        #expect(step(schedule, at: 1_020) == .checkpoint(empties: true))
        schedule.noteCommit(at: noted(60_009))
        let wal = MaintenanceSchedule.largestWAL
        #expect(step(schedule, at: 60_009, wal: wal) == .checkpoint(empties: false))
        #expect(step(schedule, at: 60_010, wal: wal) == .checkpoint(empties: true))
        #expect(
            step(schedule, at: 60_010, wal: MaintenanceSchedule.largestWAL, isIdle: false) == .checkpoint(empties: true)
        )
        schedule.noteCheckpoint(isComplete: true, empties: true, at: noted(60_010))
        schedule.noteCommit(at: noted(60_011))
        #expect(step(schedule, at: 60_011, wal: wal) == .checkpoint(empties: false))
    }

    @Test("replaced values leave the WAL in a minute, also when there is always another commit before it is quiet")
    func trickle() {
        var schedule = settled()
        for second in 1...60 {
            schedule.noteLookAfterFiles(at: noted(second * 900))
            schedule.noteCommit(at: noted(second * 900))
            #expect(step(schedule, at: second * 900, wal: 5_000) == nil)
        }
        schedule.noteLookAfterFiles(at: noted(60_500))
        schedule.noteCommit(at: noted(60_500))
        #expect(schedule.next == noted(60_900))
        #expect(step(schedule, at: 60_899, wal: 5_000) == nil)
        #expect(step(schedule, at: 60_900, wal: 5_000) == .checkpoint(empties: true))
        // A first commit after a long time is no old one.
        schedule.noteCheckpoint(isComplete: true, empties: true, at: noted(60_900))
        schedule.noteLookAfterFiles(at: noted(600_000))
        schedule.noteCommit(at: noted(600_000))
        #expect(step(schedule, at: 600_000, wal: 5_000) == nil)
    }

    @Test("a checkpoint that readers held up is tried again after a pause, not at once")
    func heldUp() {
        var schedule = settled()
        schedule.noteCommit(at: noted(10))
        schedule.noteCheckpoint(isComplete: false, empties: false, at: noted(20))
        #expect(step(schedule, at: 119, wal: 1 << 30, isIdle: false) == .holdWAL)
        schedule.noteHold(walSize: 1 << 30)
        #expect(step(schedule, at: 119, wal: 1 << 30, isIdle: false) == nil)
        #expect(step(schedule, at: 120, wal: 1 << 30, isIdle: false) == .checkpoint(empties: false))
    }

    @Test("a WAL of which little is left to move waits for its checkpoint, and is not moved ahead once more")
    func littleLeft() {
        var schedule = settled()
        let wal = MaintenanceSchedule.comfortableWAL
        schedule.noteHold(walSize: wal)
        schedule.noteHeldCheckpoint(checkpointed: wal - MaintenanceSchedule.restOfWAL + 1, synchronizes: true)
        schedule.noteWAL(size: wal, isSynchronizing: false)
        schedule.noteCheckpoint(isComplete: false, empties: false, at: noted(20))
        #expect(step(schedule, at: 119, wal: wal) == nil)
        #expect(step(schedule, at: 120, wal: wal, isIdle: false) == .checkpoint(empties: false))
    }

    @Test("while readers hold checkpoints up, the pauses between them grow, and are short again afterwards")
    func heldUpForLong() {
        var schedule = settled()
        schedule.noteCommit(at: noted(10))
        var now = 20
        for pause in [100, 200, 400, 800, 1_600, 3_000, 3_000] {
            schedule.noteCheckpoint(isComplete: false, empties: false, at: noted(now))
            schedule.noteLookAfterFiles(at: noted(now + pause))
            #expect(step(schedule, at: now + pause - 1, wal: 1 << 30, isIdle: false) == .holdWAL)
            now += pause
            #expect(step(schedule, at: now, wal: 1 << 30, isIdle: false) == .checkpoint(empties: false))
        }
        schedule.noteCheckpoint(isComplete: true, empties: false, at: noted(now))
        schedule.noteCheckpoint(isComplete: false, empties: false, at: noted(now))
        #expect(step(schedule, at: now + 100, wal: 1 << 30, isIdle: false) == .checkpoint(empties: false))
    }

    @Test("what was dropped is moved out of the WAL at once when nothing more is to be dropped, and pages given back")
    func expiry() {
        var schedule = settled(Retention(sinceWritten: .seconds(100)))
        #expect(step(schedule, at: 0) == .expire)
        schedule.noteExpiry(removed: 256, isDone: false, at: noted(1))
        #expect(step(schedule, at: 1) == .expire)
        #expect(step(schedule, at: 1, isIdle: false) == .expire)
        schedule.noteExpiry(removed: 3, isDone: true, at: noted(2))
        #expect(step(schedule, at: 2, wal: 5_000) == .checkpoint(empties: true))
        schedule.noteCheckpoint(isComplete: true, empties: true, at: noted(3))
        #expect(step(schedule, at: 3) == .releasePages)
        #expect(step(schedule, at: 3, isIdle: false) == nil)
        schedule.noteReleasedPages(more: false, at: noted(3))
        #expect(step(schedule, at: 3) == nil)
        schedule.noteLookAfterFiles(at: noted(9_500))
        // A tenth of the time that tokens are kept.
        #expect(step(schedule, at: 10_001) == nil)
        #expect(step(schedule, at: 10_002) == .expire)
    }

    @Test("another retention is gone by at once, the same one changes nothing")
    func otherRetention() {
        var schedule = settled()
        schedule.noteLookAfterFiles(at: noted(100_000))
        #expect(step(schedule, at: 10) == nil)
        schedule.noteRetention(Retention(sinceWritten: .seconds(100)), at: noted(10))
        #expect(step(schedule, at: 10) == .expire)
        schedule.noteExpiry(removed: 0, isDone: true, at: noted(20))
        schedule.noteRetention(Retention(sinceWritten: .seconds(100)), at: noted(30))
        #expect(step(schedule, at: 10_019) == nil)
        #expect(step(schedule, at: 10_020) == .expire)
        schedule.noteRetention(Retention(), at: noted(10_020))
        #expect(step(schedule, at: 90_000) == nil)
    }

    @Test(
        "tokens are looked through often enough for the time they are kept, and at most once a minute",
        arguments: [(Duration.seconds(1), 100), (.seconds(30), 3_000), (.seconds(86_400), 60_000)]
    )
    func expiryInterval(_ kept: Duration, _ milliseconds: Int) {
        var schedule = settled(Retention(sinceExpired: kept))
        schedule.noteExpiry(removed: 0, isDone: true, at: start)
        schedule.noteLookAfterFiles(at: noted(milliseconds))
        #expect(step(schedule, at: milliseconds - 1) == nil)
        #expect(step(schedule, at: milliseconds) == .expire)
    }
}
