import System
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
        admission.noteBusy()
        let began = MonotonicTime.now.nanoseconds
        #expect(admission.lookForStall(at: began + second / 2) == nil)
        #expect(admission.admit(1) == nil)
        #expect(admission.lookForStall(at: began + 2 * second) == .stalled(limit: .seconds(1)))
        #expect(admission.admit(1) == .stalled(limit: .seconds(1)))
        #expect(admission.waitingBytes == 1, "what was admitted before still waits")
        admission.noteBusy()
        #expect(admission.stall == nil)
        #expect(admission.admit(1) == nil)
        admission.noteResting()
        #expect(admission.lookForStall(at: began + 9 * second) == nil)
    }
}
