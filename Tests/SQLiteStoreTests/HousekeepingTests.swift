import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct HousekeepingTests {
    private let start = ContinuousClock.now

    private func step(
        _ housekeeping: Housekeeping, at milliseconds: Int, log: Int = 0, isIdle: Bool = true
    ) -> Housekeeping.Step? {
        housekeeping.due(at: start + .milliseconds(milliseconds), logSize: log, isIdle: isIdle)
    }

    private func noted(_ milliseconds: Int) -> ContinuousClock.Instant { start + .milliseconds(milliseconds) }

    /// One whose first checkpoint and first look at the files are over.
    private func settled(_ retention: Retention = Retention()) -> Housekeeping {
        var housekeeping = Housekeeping(retention: retention, at: start)
        housekeeping.noteCheckpoint(isComplete: true, empties: true, at: start)
        housekeeping.noteLookAfterFiles(at: start)
        housekeeping.noteReleasedPages(more: false, at: start)
        return housekeeping
    }

    @Test("an idle store is left alone but for a look at its files every second")
    func idle() {
        var housekeeping = settled()
        #expect(step(housekeeping, at: 999) == nil)
        #expect(housekeeping.next == noted(1_000))
        #expect(step(housekeeping, at: 1_000) == .lookAfterFiles)
        housekeeping.noteLookAfterFiles(at: noted(1_000))
        #expect(step(housekeeping, at: 1_999) == nil)
    }

    @Test("pages that an earlier run has left free are given back as soon as nothing else is to be done")
    func leftPages() {
        var housekeeping = Housekeeping(retention: Retention(), at: start)
        housekeeping.noteCheckpoint(isComplete: true, empties: true, at: start)
        #expect(step(housekeeping, at: 1, isIdle: false) == nil)
        #expect(step(housekeeping, at: 1) == .releasePages)
        housekeeping.noteReleasedPages(more: false, at: start)
        #expect(step(housekeeping, at: 1) == nil)
    }

    @Test("what an earlier run has left in the log is moved soon")
    func leftovers() {
        let housekeeping = Housekeeping(retention: Retention(), at: start)
        #expect(step(housekeeping, at: 1_000, log: 5_000) == .checkpoint(empties: true))
    }

    @Test("the log is moved a second after the last commit, not during a pause between two")
    func quiet() {
        var housekeeping = settled()
        housekeeping.noteCommit(at: noted(100))
        #expect(step(housekeeping, at: 900, log: 5_000) == nil)
        housekeeping.noteCommit(at: noted(900))
        #expect(housekeeping.next == noted(1_000))
        #expect(step(housekeeping, at: 1_900, log: 5_000) == .checkpoint(empties: true))
        #expect(step(housekeeping, at: 1_899, log: 5_000) == .lookAfterFiles)
        #expect(step(housekeeping, at: 1_900, log: 5_000, isIdle: false) == .lookAfterFiles)
    }

    /// Moves a log of this size ahead, and commits meanwhile.
    private func moveAhead(_ housekeeping: inout Housekeeping, log: Int, at milliseconds: Int) {
        #expect(step(housekeeping, at: milliseconds, log: log, isIdle: false) == .holdLog)
        housekeeping.noteHold(logSize: log)
        // Only what came before another commit can be moved.
        housekeeping.noteLog(size: log, isSynchronizing: false)
        #expect(step(housekeeping, at: milliseconds, log: log) == nil)
        let grown = log + 4_096
        housekeeping.noteLog(size: grown, isSynchronizing: false)
        #expect(step(housekeeping, at: milliseconds, log: grown, isIdle: false) == .moveLogAhead)
        housekeeping.noteMoveAhead(moved: log)
        housekeeping.noteLog(size: grown, isSynchronizing: true)
        #expect(step(housekeeping, at: milliseconds, log: grown) == nil)
        #expect(step(housekeeping, at: milliseconds, log: Housekeeping.largestLog - 1) == nil)
        housekeeping.noteLog(size: grown, isSynchronizing: false)
    }

    @Test("a larger log is moved ahead until little of it is left, and then at once")
    func growth() {
        var housekeeping = settled()
        var log = Housekeeping.comfortableLog
        #expect(step(housekeeping, at: 10, log: log - 1) == nil)
        moveAhead(&housekeeping, log: log, at: 10)
        log += Housekeeping.restOfLog
        moveAhead(&housekeeping, log: log, at: 20)
        log += Housekeeping.restOfLog - 1
        #expect(step(housekeeping, at: 20, log: log, isIdle: false) == .checkpoint(empties: false))
        housekeeping.noteCheckpoint(isComplete: true, empties: false, at: noted(20))
        #expect(step(housekeeping, at: 20, log: Housekeeping.comfortableLog - 1) == nil)
        moveAhead(&housekeeping, log: Housekeeping.comfortableLog, at: 30)
    }

    @Test("what could not be moved that far is moved ahead once more, what could not be held at all is not")
    func shortMove() {
        var housekeeping = settled()
        let log = Housekeeping.comfortableLog
        for (moved, next) in [(0, .holdLog), (nil, .checkpoint(empties: false))] as [(Int?, Housekeeping.Step)] {
            housekeeping.noteHold(logSize: log)
            housekeeping.noteMoveAhead(moved: moved)
            housekeeping.noteLog(size: log, isSynchronizing: false)
            #expect(step(housekeeping, at: 10, log: log) == next)
        }
    }

    @Test("a log that has begun anew by itself, or after a fault, is moved ahead as any other")
    func begunAnew() {
        var housekeeping = settled()
        moveAhead(&housekeeping, log: Housekeeping.comfortableLog, at: 10)
        housekeeping.noteCheckpoint(isComplete: false, empties: false, at: noted(10))
        housekeeping.noteLog(size: 4_096, isSynchronizing: false)
        moveAhead(&housekeeping, log: Housekeeping.comfortableLog, at: 20)
    }

    @Test("a very large log is moved at once, whatever is being done ahead")
    func largest() {
        let log = Housekeeping.largestLog
        var housekeeping = settled()
        #expect(step(housekeeping, at: 10, log: log, isIdle: false) == .checkpoint(empties: false))
        housekeeping.noteHold(logSize: log / 2)
        #expect(step(housekeeping, at: 10, log: log, isIdle: false) == .checkpoint(empties: false))
        housekeeping.noteLog(size: log, isSynchronizing: false)
        housekeeping.noteMoveAhead(moved: log / 2)
        housekeeping.noteLog(size: log, isSynchronizing: true)
        #expect(step(housekeeping, at: 10, log: log, isIdle: false) == .checkpoint(empties: false))
        // Which ends it.
        housekeeping.noteCheckpoint(isComplete: true, empties: false, at: noted(20))
        moveAhead(&housekeeping, log: Housekeeping.comfortableLog, at: 20)
    }

    @Test("what is held is let go by the checkpoint of a quiet time, and not moved ahead afterwards")
    func quietAfterHold() {
        var housekeeping = settled()
        housekeeping.noteCommit(at: noted(10))
        housekeeping.noteHold(logSize: Housekeeping.comfortableLog)
        #expect(step(housekeeping, at: 1_010, log: Housekeeping.comfortableLog) == .checkpoint(empties: true))
        housekeeping.noteCheckpoint(isComplete: true, empties: true, at: noted(1_010))
        housekeeping.noteLookAfterFiles(at: noted(1_010))
        housekeeping.noteCommit(at: noted(1_020))
        housekeeping.noteLog(size: 5_000, isSynchronizing: false)
        #expect(step(housekeeping, at: 1_020, log: 5_000) == nil)
    }

    @Test("no checkpoint of a quiet time waits for the sync of what was moved ahead")
    func quietWhileSynchronizing() {
        var housekeeping = settled()
        let log = Housekeeping.comfortableLog
        housekeeping.noteHold(logSize: log)
        housekeeping.noteCommit(at: noted(10))
        housekeeping.noteMoveAhead(moved: log)
        housekeeping.noteLog(size: log, isSynchronizing: true)
        housekeeping.noteLookAfterFiles(at: noted(900))
        #expect(step(housekeeping, at: 1_010, log: log) == nil)
        #expect(housekeeping.next == noted(1_900))
        housekeeping.noteLog(size: log, isSynchronizing: false)
        #expect(housekeeping.next == noted(1_010))
        #expect(step(housekeeping, at: 1_010, log: log) == .checkpoint(empties: true))
    }

    @Test("under load the log is written over and over, and cut to nothing once a minute")
    func rewriting() {
        var housekeeping = settled()
        housekeeping.noteCommit(at: noted(10))
        housekeeping.noteCheckpoint(isComplete: true, empties: false, at: noted(20))
        // What was moved can still be read in it: a second later that is over, if nothing else comes.
        #expect(step(housekeeping, at: 1_020) == .checkpoint(empties: true))
        housekeeping.noteCommit(at: noted(60_009))
        let log = Housekeeping.largestLog
        #expect(step(housekeeping, at: 60_009, log: log) == .checkpoint(empties: false))
        #expect(step(housekeeping, at: 60_010, log: log) == .checkpoint(empties: true))
        #expect(
            step(housekeeping, at: 60_010, log: Housekeeping.largestLog, isIdle: false) == .checkpoint(empties: true))
        housekeeping.noteCheckpoint(isComplete: true, empties: true, at: noted(60_010))
        housekeeping.noteCommit(at: noted(60_011))
        #expect(step(housekeeping, at: 60_011, log: log) == .checkpoint(empties: false))
    }

    @Test("replaced values leave the log in a minute, also when there is always another commit before it is quiet")
    func trickle() {
        var housekeeping = settled()
        for second in 1...60 {
            housekeeping.noteLookAfterFiles(at: noted(second * 900))
            housekeeping.noteCommit(at: noted(second * 900))
            #expect(step(housekeeping, at: second * 900, log: 5_000) == nil)
        }
        housekeeping.noteLookAfterFiles(at: noted(60_500))
        housekeeping.noteCommit(at: noted(60_500))
        #expect(housekeeping.next == noted(60_900))
        #expect(step(housekeeping, at: 60_899, log: 5_000) == nil)
        #expect(step(housekeeping, at: 60_900, log: 5_000) == .checkpoint(empties: true))
        // A first commit after a long time is no old one.
        housekeeping.noteCheckpoint(isComplete: true, empties: true, at: noted(60_900))
        housekeeping.noteLookAfterFiles(at: noted(600_000))
        housekeeping.noteCommit(at: noted(600_000))
        #expect(step(housekeeping, at: 600_000, log: 5_000) == nil)
    }

    @Test("a checkpoint that readers held up is tried again after a pause, not at once")
    func heldUp() {
        var housekeeping = settled()
        housekeeping.noteCommit(at: noted(10))
        housekeeping.noteCheckpoint(isComplete: false, empties: false, at: noted(20))
        #expect(step(housekeeping, at: 119, log: 1 << 30, isIdle: false) == .holdLog)
        housekeeping.noteHold(logSize: 1 << 30)
        #expect(step(housekeeping, at: 119, log: 1 << 30, isIdle: false) == nil)
        #expect(step(housekeeping, at: 120, log: 1 << 30, isIdle: false) == .checkpoint(empties: false))
    }

    @Test("while readers hold checkpoints up, the pauses between them grow, and are short again afterwards")
    func heldUpForLong() {
        var housekeeping = settled()
        housekeeping.noteCommit(at: noted(10))
        var now = 20
        for pause in [100, 200, 400, 800, 1_600, 3_000, 3_000] {
            housekeeping.noteCheckpoint(isComplete: false, empties: false, at: noted(now))
            housekeeping.noteLookAfterFiles(at: noted(now + pause))
            #expect(step(housekeeping, at: now + pause - 1, log: 1 << 30, isIdle: false) == .holdLog)
            now += pause
            #expect(step(housekeeping, at: now, log: 1 << 30, isIdle: false) == .checkpoint(empties: false))
        }
        housekeeping.noteCheckpoint(isComplete: true, empties: false, at: noted(now))
        housekeeping.noteCheckpoint(isComplete: false, empties: false, at: noted(now))
        #expect(step(housekeeping, at: now + 100, log: 1 << 30, isIdle: false) == .checkpoint(empties: false))
    }

    @Test("what was dropped is moved out of the log at once when nothing more is to be dropped, and pages given back")
    func expiry() {
        var housekeeping = settled(Retention(sinceWritten: .seconds(100)))
        #expect(step(housekeeping, at: 0) == .expire)
        housekeeping.noteExpiry(removed: 256, isDone: false, at: noted(1))
        #expect(step(housekeeping, at: 1) == .expire)
        #expect(step(housekeeping, at: 1, isIdle: false) == .expire)
        housekeeping.noteExpiry(removed: 3, isDone: true, at: noted(2))
        #expect(step(housekeeping, at: 2, log: 5_000) == .checkpoint(empties: true))
        housekeeping.noteCheckpoint(isComplete: true, empties: true, at: noted(3))
        #expect(step(housekeeping, at: 3) == .releasePages)
        #expect(step(housekeeping, at: 3, isIdle: false) == nil)
        housekeeping.noteReleasedPages(more: false, at: noted(3))
        #expect(step(housekeeping, at: 3) == nil)
        housekeeping.noteLookAfterFiles(at: noted(9_500))
        // A tenth of the time that tokens are kept.
        #expect(step(housekeeping, at: 10_001) == nil)
        #expect(step(housekeeping, at: 10_002) == .expire)
    }

    @Test("another retention is gone by at once, the same one changes nothing")
    func otherRetention() {
        var housekeeping = settled()
        housekeeping.noteLookAfterFiles(at: noted(100_000))
        #expect(step(housekeeping, at: 10) == nil)
        housekeeping.noteRetention(Retention(sinceWritten: .seconds(100)), at: noted(10))
        #expect(step(housekeeping, at: 10) == .expire)
        housekeeping.noteExpiry(removed: 0, isDone: true, at: noted(20))
        housekeeping.noteRetention(Retention(sinceWritten: .seconds(100)), at: noted(30))
        #expect(step(housekeeping, at: 10_019) == nil)
        #expect(step(housekeeping, at: 10_020) == .expire)
        housekeeping.noteRetention(Retention(), at: noted(10_020))
        #expect(step(housekeeping, at: 90_000) == nil)
    }

    @Test(
        "tokens are looked through often enough for the time they are kept, and at most once a minute",
        arguments: [(Duration.seconds(1), 100), (.seconds(30), 3_000), (.seconds(86_400), 60_000)]
    )
    func expiryInterval(_ kept: Duration, _ milliseconds: Int) {
        var housekeeping = settled(Retention(sinceExpired: kept))
        housekeeping.noteExpiry(removed: 0, isDone: true, at: start)
        housekeeping.noteLookAfterFiles(at: noted(milliseconds))
        #expect(step(housekeeping, at: milliseconds - 1) == nil)
        #expect(step(housekeeping, at: milliseconds) == .expire)
    }
}
