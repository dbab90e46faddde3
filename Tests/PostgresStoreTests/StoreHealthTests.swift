#if PostgreSQL
import System
import Testing
import TokenStore

@testable import PostgresStore

/// What operators are told, and when the server is not ready.
///
/// Times are in milliseconds.
struct StoreHealthTests {
    private static let start: UInt64 = 1_000_000
    private let server = "PostgreSQL 15.18 at db1:5432 (timeline 1)"
    private let refusal = PostgresError.connection("connection refused")
    private let diskFull = StoreFault("PostgreSQL at db1:5432: no room (SQLSTATE 53100)", cause: .diskFull)

    private func at(_ milliseconds: UInt64) -> MonotonicTime {
        MonotonicTime(nanoseconds: (Self.start + milliseconds) * 1_000_000)
    }

    /// The health of a store that has a connection.
    private func connected(_ count: Int = 1) -> StoreHealth {
        var health = StoreHealth(places: "db1:5432, db2:5432", at: at(0))
        for _ in 0..<count { _ = health.noteConnected("db1:5432", server, at: at(0)) }
        return health
    }

    private func texts(_ events: [StoreEvent]) -> [String] { events.map(\.description) }

    @Test
    func `before the first connection the server is not ready, and a line says why, and says so when that changes`() {
        var health = StoreHealth(places: "db1:5432, db2:5432", at: at(0))
        #expect("\(health.fault(at: at(0))!)".contains("none of db1:5432, db2:5432 has answered yet"))
        let told = texts(health.noteNotFound("db1:5432: connection refused", at: at(10)))
        #expect(told.count == 1 && told[0].hasSuffix(": db1:5432: connection refused"))
        #expect(health.noteNotFound("b", at: at(9_000)).isEmpty)
        // The reason for not being ready is the latest one.
        #expect("\(health.fault(at: at(9_000))!)".hasSuffix(": b"))
        #expect(health.noteNotFound("b", at: at(10_010)).count == 1)
        #expect(health.noteNotFound("b", at: at(60_000)).isEmpty)
        #expect(texts(health.noteConnected("db1:5432", server, at: at(60_000))) == ["connected to \(server)"])
        #expect(health.noteConnected("db1:5432", server, at: at(60_010)).isEmpty)
        #expect(health.fault(at: at(60_000)) == nil && health.connections == ["db1:5432": 2])
    }

    @Test func `a failover is two lines, and one more and no readiness after three seconds`() {
        var health = connected(2)
        let lost = health.noteLost("db1:5432", refusal, at: at(1_000))
        #expect(
            texts(lost) == [
                "the connection to PostgreSQL at db1:5432 is lost, looking for the primary: connection refused"
            ])
        #expect(lost[0].severity == .warning)
        #expect(health.noteLost("db1:5432", refusal, at: at(1_001)).isEmpty)
        #expect(health.noteNotFound("db2:5432 is a standby", at: at(1_500)).isEmpty)
        #expect(health.fault(at: at(4_001)) == nil && health.fault(at: at(4_002)) != nil)
        let told = health.noteNotFound("db1:5432: connection refused; db2:5432 is a standby", at: at(4_100))
        #expect(told.count == 1 && told[0].severity == .fault)
        #expect("\(health.fault(at: at(5_000))!)".contains("db2:5432 is a standby"))
        let found = health.noteConnected("db2:5432", "PostgreSQL 15.18 at db2:5432 (timeline 2)", at: at(5_101))
        #expect(texts(found) == ["connected to PostgreSQL 15.18 at db2:5432 (timeline 2), after 4.1 s"])
        #expect(found[0].severity == .note && health.connections == ["db2:5432": 1])
    }

    @Test func `a lost connection beside others is no trouble, nor is one that is given up for a better one`() {
        var health = connected(2)
        #expect(health.noteLost("db1:5432", refusal, isExpected: true, at: at(0)).isEmpty)
        _ = health.noteConnected("db1:5432", server, at: at(0))
        #expect(health.noteLost("db1:5432", refusal, at: at(0)).count == 1)
        #expect(!health.isTroubled && health.fault(at: at(60_000)) == nil)
        #expect(health.noteNotFound("nothing", at: at(60_000)).isEmpty)
    }

    @Test func `connections that are lost all the time are two lines in ten seconds`() {
        var health = connected()
        var lines: [String] = []
        for second in UInt64(0)..<20 {
            lines += texts(health.noteLost("db1:5432", refusal, at: at(second * 1_000)))
            lines += texts(health.noteConnected("db1:5432", server, at: at(second * 1_000 + 100)))
        }
        #expect(lines.count == 4)
    }

    // MARK: - Requests

    @Test func `requests that fail on a connection are one line, and one when they do not any more`() {
        var health = connected()
        let first = health.noteFailure(diskFull, isWrite: true, since: at(0), at: at(0))
        #expect(texts(first) == ["tokens cannot be stored, clients are told so: \(diskFull)"])
        #expect(first[0].severity == .fault)
        #expect(health.fault(at: at(3_000)) == nil && health.fault(at: at(3_001)) == .write(diskFull))
        for time in UInt64(1)..<100 {
            #expect(health.noteFailure(diskFull, isWrite: true, since: at(time), at: at(time * 10)).isEmpty)
            // Small writes may still find room.
            #expect(health.noteSuccess(isWrite: true, at: at(time * 10 + 5)).isEmpty)
            #expect(health.noteSuccess(isWrite: false, at: at(time * 10 + 5)).isEmpty)
        }
        #expect(health.isTroubled)
        #expect(health.noteSuccess(isWrite: true, at: at(2_989)).isEmpty)
        #expect(health.noteSuccess(isWrite: true, at: at(2_990)) == [.writesRecovered(failed: 100)])
        #expect(!health.isTroubled)
        #expect(health.noteSuccess(isWrite: true, at: at(4_000)).isEmpty)
    }

    @Test func `a server that gets no requests any more is not ready until a trial succeeds`() {
        var health = connected()
        _ = health.noteFailure(diskFull, isWrite: true, since: at(0), at: at(5_000))
        // While requests fail, no trial is needed.
        #expect(!health.needsTrial(ofWrites: true, at: at(6_999)))
        #expect(health.needsTrial(ofWrites: true, at: at(7_000)))
        #expect(!health.needsTrial(ofWrites: false, at: at(7_000)))
        #expect(health.fault(at: at(3_600_000)) == .write(diskFull))
        // Successful reads say nothing of writes.
        #expect(health.noteSuccess(isWrite: false, at: at(3_600_000)).isEmpty)
        #expect(health.fault(at: at(3_600_000)) == .write(diskFull))
        #expect(health.noteSuccess(isWrite: true, at: at(3_600_000)) == [.writesRecovered(failed: 1)])
        #expect(health.fault(at: at(3_600_000)) == nil)
        #expect(!health.needsTrial(ofWrites: true, at: at(3_700_000)))
    }

    @Test func `requests that have waited through an outage and fail after it are part of it`() {
        var health = connected()
        _ = health.noteLost("db1:5432", refusal, at: at(0))
        #expect(health.noteFailure(diskFull, isWrite: true, since: at(0), at: at(1_000)).isEmpty)
        _ = health.noteConnected("db2:5432", server, at: at(6_000))
        #expect(health.noteFailure(diskFull, isWrite: false, since: at(1_010), at: at(6_010)).isEmpty)
        #expect(health.noteFailure(diskFull, isWrite: true, since: at(1_010), at: at(6_010)).isEmpty)
        #expect(health.fault(at: at(6_010)) == nil)
        // Requests that began later show that the new connection does not help.
        #expect(health.noteFailure(diskFull, isWrite: false, since: at(6_000), at: at(11_000)).count == 1)
        #expect(health.fault(at: at(11_000)) == .read(diskFull))
    }
}
#endif
