import Glibc
import Synchronization
import Testing

@testable import System

@Suite struct NamedThreadTests {
    @Test func `a thread that cannot be started waits until there is room for it`() async {
        // In a process of its own, as the limit is the process's. It does not bind root.
        await #expect(processExitsWith: .success) {
            if geteuid() == 0 { precondition(setuid(65_534) == 0) }
            let resource = __rlimit_resource_t(__RLIMIT_NPROC.rawValue)
            var limit = rlimit()
            unsafe getrlimit(resource, &limit)
            let most = limit.rlim_cur
            limit.rlim_cur = 0
            unsafe setrlimit(resource, &limit)
            let done = Atomic(0)
            for name in ["first", "second"] {
                NamedThread.startWhenPossible(name) { done.add(1, ordering: .releasing) }
            }
            guard let attempt = NamedThread.startWaiting(), attempt.newcomers == ["first", "second"],
                attempt.started == [], attempt.waitingCount == 2, attempt.shortage != nil,
                NamedThread.startWaiting()?.newcomers == []
            else { exit(1) }
            limit.rlim_cur = most
            unsafe setrlimit(resource, &limit)
            guard let last = NamedThread.startWaiting(), last.started == ["first", "second"], last.waitingCount == 0,
                last.shortage == nil, NamedThread.startWaiting() == nil
            else { exit(2) }
            while done.load(ordering: .acquiring) < 2 { usleep(1_000) }
            exit(EXIT_SUCCESS)
        }
    }
}
