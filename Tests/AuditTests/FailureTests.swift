import Dispatch
import Glibc
import Synchronization
import System
import Testing

@testable import Audit

@Suite struct FailureTests {
    @Test("a file at its limit of size has whole lines only, and goes on later")
    func sizeLimit() async {
        // In a process of its own: the limit and the signal are the process's.
        await #expect(processExitsWith: .success) {
            let fixture = try LogFixture()
            let log = try fixture.open()
            signal(SIGXFSZ, SIG_IGN)
            var limit = rlimit()
            for room in [1, 100, 300, 500] {
                try log.append([.stored])
                let (before, figures) = (LogFixture.contents(fixture.path), log.figures)
                unsafe getrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
                let most = limit.rlim_cur
                limit.rlim_cur = rlim_t(before.utf8.count + room)
                unsafe setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
                for _ in 0..<3 {
                    #expect(throws: AuditError.self) { try log.append([.stored, .stored, .stored]) }
                }
                log.keepUp()
                #expect(log.figures.sequence == figures.sequence || room >= 300)
                limit.rlim_cur = most
                unsafe setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
                #expect(LogFixture.contents(fixture.path).hasPrefix(before))
                log.keepUp()
                #expect(!log.figures.isFailing)
                #expect(try fixture.verify().isSound)
            }
            #expect(log.figures.failures >= 12)
            #expect(fixture.lines().filter { $0.contains(#""lost_events":9"#) }.count == 4)
            exit(try fixture.verify().isSound ? EXIT_SUCCESS : EXIT_FAILURE)
        }
    }

    @Test(
        "an error of a file says what to do about its cause",
        arguments: [(ENOSPC, "room"), (EIO, "kernel's log"), (EMFILE, "LimitNOFILE="), (EACCES, "has access")])
    func advice(code: Int32, advice: String) {
        let text = AuditError.file(path: "/a/log", SystemError(call: "write", code: code)).description
        #expect(text.hasPrefix("/a/log cannot be used (write: \(SystemError.reason(code)));") && text.contains(advice))
        // Only this code means a lack of access.
        #expect(text.contains("has access") == (code == EACCES))
    }

    @Test("events that are appended again later do not count as lost")
    func retrying() async {
        // In a process of its own: the limit and the signal are the process's.
        await #expect(processExitsWith: .success) {
            let fixture = try LogFixture()
            let log = try fixture.open()
            signal(SIGXFSZ, SIG_IGN)
            var limit = rlimit()
            unsafe getrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
            let most = limit.rlim_cur
            limit.rlim_cur = rlim_t(LogFixture.contents(fixture.path).utf8.count + 1)
            unsafe setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
            #expect(throws: AuditError.self) { try log.append([.stored, .stored, .stored], retrying: 2) }
            limit.rlim_cur = most
            unsafe setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
            try log.append([.stored, .stored], retrying: 2)
            #expect(fixture.lines().filter { $0.contains(#""lost_events":1"#) }.count == 1)
            #expect(fixture.lines().filter { $0.contains(#""lost_events":"#) }.count == 1)
            exit(try fixture.verify().isSound ? EXIT_SUCCESS : EXIT_FAILURE)
        }
    }

    @Test("lines from several threads are in the order of their numbers, and none is lost")
    func threads() throws {
        let fixture = try LogFixture()
        let log = try fixture.open()
        let failures = Atomic<Int>(0)
        DispatchQueue.concurrentPerform(iterations: 8) { thread in
            for number in 0..<50 {
                do {
                    try log.append(Array(repeating: .stored, count: 1 + (thread + number) % 3))
                    if number % 20 == 0 { log.keepUp() }
                } catch {
                    failures.add(1, ordering: .relaxed)
                }
            }
        }
        let counts = (0..<8).flatMap { thread in (0..<50).map { 1 + (thread + $0) % 3 } }
        let found = try fixture.verify()
        #expect(failures.load(ordering: .relaxed) == 0)
        #expect(found.isSound && found.lines == 1...UInt64(counts.reduce(1, +)))
    }
}
