#if PostgreSQL
import System
import Testing

@testable import PostgresStore

@Suite struct OnceEachTests {
    @Test("a fault is told of when it begins, and again when it comes back")
    func faults() {
        let (once, start) = (OnceEach(absence: .seconds(60)), MonotonicTime.now)
        func isNew(_ text: String, after seconds: Int) -> Bool {
            once.isNew(text, at: start + Nanoseconds(.seconds(seconds)))
        }
        #expect(isNew("a", after: 0) && isNew("b", after: 0))
        // It is seen again and again, for longer than an absence lasts.
        for seconds in stride(from: 5, through: 300, by: 5) { #expect(!isNew("a", after: seconds)) }
        #expect(isNew("b", after: 301) && !isNew("a", after: 359) && isNew("a", after: 420))
        // Texts that differ each time fill neither the memory nor the log.
        #expect((0..<1_000).count { isNew("\($0)", after: 500) } == 100)
        #expect(isNew("a", after: 560))
    }
}
#endif
