import Glibc
import Synchronization
import System
import Testing

@testable import Server

struct ThreadNoticesTests {
    private let shortage = ThreadShortage(SystemError(call: "pthread_create", code: EAGAIN))

    @Test
    func `a shortage of threads has a line when it begins and one when it ends, and no more than one in a minute`() {
        var notices = ThreadNotices()
        let start = ContinuousClock.now
        func line(_ seconds: Int, _ newcomers: [String], started: [String] = [], waiting: Int) -> String? {
            let attempt = NamedThread.Attempt(
                newcomers: newcomers, started: started, waitingCount: waiting, shortage: waiting > 0 ? shortage : nil)
            return notices.line(for: attempt, at: start + .seconds(seconds)).map { "\($0.level): \($0.text)" }
        }
        // It has passed before anybody could be told.
        #expect(line(0, ["access log"], started: ["access log"], waiting: 0) == nil)
        let first = line(1, ["pg-dial", "access log", "pg-dial"], waiting: 3)
        #expect(
            first
                == "warning: the threads pg-dial, access log cannot start yet, and will as soon as possible: \(shortage)"
        )
        #expect(line(2, ["pg-dial"], started: ["pg-dial"], waiting: 3) == nil)
        let last = line(3, [], started: ["access log", "pg-dial"], waiting: 0)
        #expect(last == "notice: all threads that had to wait have started, at last the threads access log, pg-dial")
        #expect(line(4, ["pg-dial"], waiting: 1) == nil)
        #expect(line(5, [], started: ["pg-dial"], waiting: 0) == nil)
        #expect(line(62, ["pg-dial"], waiting: 1)?.hasPrefix("warning: the thread pg-dial cannot start yet") == true)
    }
}
