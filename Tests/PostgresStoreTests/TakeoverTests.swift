#if PostgreSQL
import System
import Testing

@testable import PostgresStore

/// What operators are told when another server has become the primary.
struct TakeoverTests {
    @Test func `the line names both servers, and when each step was done`() {
        let takeover = Takeover(
            present: "PostgreSQL 15.18 at db2:5432 (timeline 14)",
            former: ServerIdentity(address: "db1:5432", timeline: 13),
            untilSeen: Nanoseconds(.milliseconds(404)), untilUsed: Nanoseconds(.milliseconds(12_096)))
        #expect(
            takeover.description == """
                PostgreSQL 15.18 at db2:5432 (timeline 14) is the primary now in the place of db1:5432 (timeline 13); it was found to be \
                writable 0.40 s after the search had begun, and could be used after 12.10 s
                """)
    }
}
#endif
