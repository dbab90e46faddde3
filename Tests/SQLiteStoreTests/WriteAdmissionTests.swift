import CSQLite
import Synchronization
import System
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct WriteAdmissionTests {
    @Test("rows wait up to the limit, and what was released makes room")
    func bytes() {
        let admission = WriteAdmission(byteLimit: 100, timeLimit: .seconds(1))
        #expect(admission.admit(60) == nil)
        #expect(admission.admit(40) == nil)
        #expect(admission.admit(1) == .queue(bytes: 100))
        #expect(admission.waitingBytes == 100)
        admission.release(40)
        #expect(admission.admit(41) == .queue(bytes: 100))
        #expect(admission.admit(40) == nil)
        #expect(admission.waitingBytes == 100)
    }

    @Test("a writer that is at one thing for too long is stalled until it goes on")
    func time() {
        let admission = WriteAdmission(byteLimit: 100, timeLimit: .seconds(1))
        let second: UInt64 = 1_000_000_000
        #expect(admission.lookForStall(at: MonotonicTime.now.nanoseconds + 9 * second) == nil, "it rests")
        // It begins between these two moments.
        let before = MonotonicTime.now.nanoseconds
        admission.noteBusy()
        let after = MonotonicTime.now.nanoseconds
        #expect(admission.lookForStall(at: before + second) == nil)
        #expect(admission.admit(1) == nil)
        #expect(admission.lookForStall(at: after + second + 1) == .stalled(limit: .seconds(1)))
        #expect(admission.admit(1) == .stalled(limit: .seconds(1)))
        #expect(admission.waitingBytes == 1, "what was admitted before still waits")
        admission.noteBusy()
        #expect(admission.stall == nil)
        #expect(admission.admit(1) == nil)
        admission.noteResting()
        #expect(admission.lookForStall(at: after + 9 * second) == nil)
    }
}

/// Checks after each step of SQLite's virtual machine whether the writer would count as stalled if the step took very
/// long.
private final class StallWatch: Sendable {
    let steps = Atomic<Int>(0)
    let stalls = Atomic<Int>(0)
    private let admission: WriteAdmission

    init(_ admission: WriteAdmission) {
        self.admission = admission
    }

    func begin(on connection: SQLiteConnection) {
        sqlite3_progress_handler(
            connection.handle, 1,
            { context in
                guard let context else { return 0 }
                let watch = Unmanaged<StallWatch>.fromOpaque(context).takeUnretainedValue()
                watch.steps.add(1, ordering: .relaxed)
                if watch.admission.lookForStall(at: MonotonicTime.now.nanoseconds + 1 << 53) != nil {
                    watch.stalls.add(1, ordering: .relaxed)
                }
                return 0
            }, Unmanaged.passUnretained(self).toOpaque())
    }

    func end(on connection: SQLiteConnection) {
        sqlite3_progress_handler(connection.handle, 0, nil, nil)
    }
}

@Suite struct GroupPauseTests {
    @Test
    func `a write alone, or with a few others, is followed by no wait`() {
        for count in 0...3 { #expect(GroupPause(afterGroupOf: count, took: .milliseconds(10)) == nil) }
    }

    @Test(
        arguments: [
            (.microseconds(80), .microseconds(10)), (.milliseconds(8), .milliseconds(1)),
            (.milliseconds(40), .milliseconds(5)), (.seconds(60), .milliseconds(5)),
        ] as [(Duration, Duration)])
    func `the wait after a group is an eighth of its commit, and never long`(took: Duration, expected: Duration) {
        #expect(GroupPause(afterGroupOf: 4, took: took)?.duration == expected)
    }
}
