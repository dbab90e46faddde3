import Glibc
import Testing

@testable import System

@Suite struct NamedThreadTests {
    /// To be called in a process of its own, as the limit is the process's; it does not bind root.
    private static func withoutThreads(_ body: () -> Void) {
        if geteuid() == 0 { precondition(setuid(65_534) == 0) }
        var limit = rlimit(rlim_cur: 0, rlim_max: 0)
        unsafe setrlimit(__rlimit_resource_t(__RLIMIT_NPROC.rawValue), &limit)
        body()
    }

    @Test func `a thread that cannot be started is an error`() async {
        await #expect(processExitsWith: .success) {
            NamedThreadTests.withoutThreads {
                guard (try? NamedThread.start("first") {}) == nil else { exit(1) }
            }
            exit(EXIT_SUCCESS)
        }
    }

    @Test func `without a thread that it needs the process ends and says why`() async throws {
        let result = try await #require(
            processExitsWith: .exitCode(EXIT_FAILURE), observing: [\.standardErrorContent]
        ) {
            NamedThreadTests.withoutThreads { NamedThread.startOrExit("first") {} }
            exit(EXIT_SUCCESS)
        }
        let text = String(decoding: result.standardErrorContent, as: UTF8.self)
        #expect(text.contains("token-cache: no thread can be started") && text.contains("TasksMax="))
    }
}
