#if PostgreSQL
import Cryptography
import System
import Testing

@testable import PostgresStore
@testable import TokenStore

/// Which answers count, and what proves a server to be the primary.
@Suite struct FenceTests {
    private func at(_ milliseconds: UInt64) -> MonotonicTime { MonotonicTime(nanoseconds: milliseconds * 1_000_000) }

    @Test func `answers of a former primary are not judged by the proof of the present one`() {
        let proofs = Proofs()
        let (one, two) = (
            proofs.proof(of: ServerIdentity(address: "db1:5432", timeline: 1)),
            proofs.proof(of: ServerIdentity(address: "db2:5432", timeline: 2))
        )
        one.note(at(1_000))
        var (former, present) = (HeldAnswers<String>(one), HeldAnswers<String>(two))
        // It was cut off, and answers from what it has.
        former.hold("stale", answeredAt: at(2_000))
        former.hold("staler", answeredAt: at(2_100))
        present.hold("fresh", answeredAt: at(2_000))
        two.note(at(2_500))
        #expect(present.takeProven() == ["fresh"] && present.isEmpty)
        #expect(former.takeProven().isEmpty)
        #expect(former.answers == ["stale", "staler"])
    }

    @Test(arguments: [(0, true), (1_250, true), (1_251, false), (3_000, false)])
    func `an answer counts if a proof began at most 750 ms before it, or after it`(answeredAt: UInt64, counts: Bool) {
        let proof = Proof(seenAt: at(0))
        proof.note(at(500))
        var held = HeldAnswers<Int>(proof)
        #expect(held.isProven(answeredAt: at(answeredAt)) == counts)
        held.hold(1, answeredAt: at(answeredAt))
        proof.note(at(3_001))
        #expect(held.takeProven() == [1])
    }

    /// A row that each case may change, and whether the commit asks standbys.
    @Test(arguments: [
        ([Statement.lockUser], false), ([.lockUser, .trimSessions], false), ([.lockUser, .eraseToken], true),
        ([.findSession], false), ([.endSession], true),
    ])
    func `what has changed a row proves its server, also if it returns the row`(
        statements: [Statement], isProof: Bool
    ) throws {
        let database = try TestDatabase()
        try database.sql("INSERT INTO session VALUES ('k', 'i', 'u', 1, 1, 9, 1, 0, '')")
        let target = try ConnectionTarget(url: database.url) { nil }
        let state = PostgresState(
            sealing: Sealing(.clear(index: try .random())), versions: try VersionClock(), hosts: ["host"],
            options: StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: ""))
        ) { _ in }
        let dial = Dial(
            target: target, host: target.hosts[0], timeout: .seconds(60), durability: .local, trial: .asNeeded,
            proofs: state.proofs
        ) { _, _ in }
        let pipeline = Pipeline(try dial.run().get(), Proof(seenAt: .now))
        let parameters: [Statement: Parameters] = [
            .lockUser: [.bytea([1])], .trimSessions: [.bytea([1]), .bigint(0)],
            .eraseToken: [.bytea([1]), .bigint(1), .bigint(1)],
            .findSession: [.bytea(Array("k".utf8)), .bigint(1)], .endSession: [.bytea(Array("i".utf8))],
        ]
        let operation = SessionOperation(
            RowAccess(state, timeout: .seconds(60)), 0, statements.map { ($0, parameters[$0]!) }, Completion { _ in }
        ) { _, _, _ in }
        try pipeline.send([operation], at: .now)
        var ended: [Pipeline.Group] = []
        while try !pipeline.connection.flush() {}
        while ended.isEmpty { try pipeline.receive(&ended) }
        #expect(ended[0].failure == nil && ended[0].hasProven == isProof)
    }
}
#endif
