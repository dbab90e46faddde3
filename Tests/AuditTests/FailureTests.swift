import Dispatch
import Glibc
import Synchronization
import System
import Testing

@testable import Audit

@Suite struct FailureTests {
    @Test("a file at its size limit has whole lines only, and is continued later")
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

    @Test("events that are written again later are not lost, and do not count as lost")
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
            let outcomes = Mutex<[Bool]>([])
            let isWritten = Semaphore()
            func submit(_ events: [AuditEvent], isRetried: Bool) {
                log.submit(events, isRetried: isRetried) { outcome in
                    outcomes.withLock { $0.append(outcome) }
                    isWritten.signal()
                }
                isWritten.wait()
            }
            submit([.stored, .stored], isRetried: true)
            submit([.stored], isRetried: false)
            log.keepUp()
            #expect(outcomes.withLock(\.self) == [false, false] && log.figures.isFailing)
            #expect(!fixture.lines().contains { $0.contains("store_token") })
            limit.rlim_cur = most
            unsafe setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
            for _ in 0..<2 { log.keepUp() }
            #expect(fixture.lines().filter { $0.contains("store_token") }.count == 2)
            #expect(fixture.lines().filter { $0.contains(#""lost_events":1"#) }.count == 1)
            #expect(fixture.lines().filter { $0.contains(#""lost_events":"#) }.count == 1)
            exit(try fixture.verify().isSound ? EXIT_SUCCESS : EXIT_FAILURE)
        }
    }

    @Test("events that could not be written again before the end are counted in it")
    func retryingUntilTheEnd() async {
        await #expect(processExitsWith: .success) {
            let fixture = try LogFixture()
            let log = try fixture.open()
            signal(SIGXFSZ, SIG_IGN)
            var limit = rlimit()
            unsafe getrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
            // Enough for the lines of the end, and not for those events.
            limit.rlim_cur = rlim_t(LogFixture.contents(fixture.path).utf8.count + 1_000)
            unsafe setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
            log.submit(Array(repeating: .stored, count: 20), isRetried: true)
            log.close()
            #expect(!fixture.lines().contains { $0.contains("store_token") })
            #expect(fixture.lines().filter { $0.contains(#""lost_events":20"#) }.count == 1)
            #expect(fixture.lines().last?.contains("close_log") == true)
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

    @Test("a disk that does not respond holds up nobody for long, and submitted events are written once it does")
    func stalledDisk() throws {
        let fixture = try LogFixture()
        let isHanging = Atomic<Bool>(false)
        let (reached, answers) = (Semaphore(), Semaphore())
        // The clock is read by the thread that is about to write.
        let log = try AuditLog(
            path: fixture.path, keyPath: fixture.keyPath,
            clock: {
                if isHanging.load(ordering: .relaxed) {
                    reached.signal()
                    answers.wait()
                }
                return 1_795_000_000_123_456
            }, report: { notice in fixture.note(notice) })
        let found = Mutex<[Bool]>([])
        func submit() { log.submit([.stored]) { isRecorded in found.withLock { $0.append(isRecorded) } } }
        isHanging.store(true, ordering: .relaxed)
        submit()
        reached.wait()
        isHanging.store(false, ordering: .relaxed)
        submit()
        log.checkProgress()
        #expect(found.withLock(\.isEmpty) && !log.figures.isFailing)
        let late = MonotonicTime.now + Nanoseconds(.seconds(6))
        log.checkProgress(at: late)
        log.checkProgress(at: late)
        #expect(found.withLock(\.self) == [false, false] && log.figures.isFailing)
        let advice = "the disk of \(fixture.path) does not respond; check it"
        #expect(fixture.takeNotices() == ["the audit log cannot be written: \(advice)"])
        submit()
        #expect(found.withLock(\.count) == 3)
        // More than there is room for.
        let dropped = Array(repeating: AuditEvent.stored, count: SubmittedEvents.limit)
        log.submit(dropped) { _ in }
        answers.signal()
        log.close()
        #expect(
            fixture.takeNotices() == ["the audit log is written again; \(dropped.count) events are not in it"])
        #expect(fixture.lines().count { $0.contains(#""lost_events":\#(dropped.count),"#) } == 1)
        #expect(!log.figures.isFailing && found.withLock(\.count) == 3)
        #expect(fixture.lines().filter { $0.contains("store_token") }.count == 3)
        #expect(try fixture.verify().isSound)
    }

    @Test("events that come while the log writes wait together, up to a limit, and those beyond it are lost")
    func submittedEvents() {
        var submitted = SubmittedEvents()
        let (start, later) = (MonotonicTime(nanoseconds: 0), MonotonicTime(nanoseconds: 6_000_000_000))
        func add(_ count: Int, isRetried: Bool = false, at now: MonotonicTime) -> [Bool] {
            let added = submitted.add(Array(repeating: .stored, count: count), isRetried: isRetried, { _ in }, at: now)
            return [added.isFirst, added.isAwaited]
        }
        #expect(add(1, at: start) == [true, true] && add(1, at: later) == [false, true])
        #expect(submitted.isLate(at: later) && submitted.take(at: later).events.count == 2)
        // The disk has its time anew for each writing.
        #expect(!submitted.isLate(at: later))
        #expect(add(SubmittedEvents.limit, at: later) == [true, true] && add(2, at: later) == [false, false])
        #expect(submitted.finish(removing: 0, at: later).count == 2)
        let taken = submitted.take(at: later)
        #expect(taken.events.count == SubmittedEvents.limit && taken.lost == 2)
        #expect(add(1, at: later) == [true, true] && submitted.giveUp().count == 2)
        #expect(submitted.finish(removing: 0, at: later).isEmpty && submitted.take(at: later).events.count == 1)
        #expect(submitted.finish(removing: 0, at: later).isEmpty && !submitted.isLate(at: .never))
        // Those that are written again have a place until they are written.
        #expect(add(SubmittedEvents.limit, isRetried: true, at: start) == [true, true])
        #expect(submitted.take(at: later).retried.count == SubmittedEvents.limit)
        #expect(add(1, at: later) == [false, false] && add(1, isRetried: true, at: later) == [false, false])
        #expect(submitted.finish(removing: 0, at: later).count == 1 && !submitted.isLate(at: .never))
        let again = submitted.take(at: later)
        #expect(again.retried.count == SubmittedEvents.limit && again.lost == 2)
        #expect(submitted.finish(removing: SubmittedEvents.limit, at: later).isEmpty)
        #expect(add(1, at: later) == [true, true])
        #expect(submitted.take(at: later).retried.isEmpty)
    }
}
