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
        two.note(at(2_500))
        #expect(two.counts(forAnswerAt: at(2_000)))
        // It was cut off, and answers with the data that it has.
        #expect(!one.counts(forAnswerAt: at(2_000)))
        #expect(proofs.proof(of: ServerIdentity(address: "db1:5432", timeline: 1)) === one)
    }

    @Test(arguments: [(0, true), (1_250, true), (1_251, false), (3_000, false)])
    func `an answer counts if a proof began at most 750 ms before it, or after it`(answeredAt: UInt64, counts: Bool) {
        let proof = Proof(seenAt: at(0))
        proof.note(at(500))
        #expect(proof.counts(forAnswerAt: at(answeredAt)) == counts)
        proof.note(at(3_001))
        #expect(proof.counts(forAnswerAt: at(answeredAt)))
    }

    /// Each case has statements, and says whether they change a row, so that standbys must acknowledge the commit.
    @Test(arguments: [
        ([Statement.lockUser], false), ([.lockUser, .trimSessions], false), ([.lockUser, .eraseToken], true),
        ([.findSession], false), ([.endSession], true),
    ])
    func `a transaction that has changed a row proves its server, also if it returns the row`(
        statements: [Statement], isProof: Bool
    ) throws {
        let database = try TestDatabase()
        try database.sql("INSERT INTO session VALUES ('k', 'i', 'u', 1, 1, 9, 1, 0, '')")
        let lone = try LoneHandle(database.options())
        let pipeline = Pipeline(try lone.connection(), Proof(seenAt: .now))
        let parameters: [Statement: Parameters] = [
            .lockUser: [.bytea([1])], .trimSessions: [.bytea([1]), .bigint(0)],
            .eraseToken: [.bytea([1]), .bigint(1), .bigint(1)],
            .findSession: [.bytea(Array("k".utf8)), .bigint(1)], .endSession: [.bytea(Array("i".utf8))],
        ]
        let operation = SessionOperation(
            lone.handle.rows, 0, statements.map { ($0, parameters[$0]!) }, Completion { _ in }
        ) { _, _, _ in }
        try pipeline.send([operation], at: .now)
        var ended: [Pipeline.Group] = []
        while try !pipeline.connection.flush() {}
        while ended.isEmpty { try pipeline.receive(&ended) }
        #expect(ended[0].failure == nil && ended[0].hasProven == isProof)
    }

    @Test func `reads that are given up for want of a proof are not kept`() throws {
        // Commits wait for a standby that never comes.
        let cluster = try TestCluster(settings: ["synchronous_standby_names": "nobody"])
        let owner = try cluster.connection(to: "postgres")
        try owner.run("SET synchronous_commit = local")
        _ = try Schema.makeTables(owner)
        let lone = try LoneHandle(cluster.options(for: "postgres"), timeout: .milliseconds(300))
        var outcome: Result<Fetched, StoreError>?
        // On a busy machine its time may be over before the answer comes, which ends the connection.
        while lone.state.metrics.remote?.heldReads == 0 {
            if lone.handle.slots[0].pipeline == nil {
                lone.handle.take(try lone.connection(needsProof: true), 0)
            }
            outcome = nil
            _ = try lone.handle.fetch(Array("a".utf8), upTo: 10, if: nil) { Completion { outcome = $0 } }
            lone.handle.flush()
            try lone.proceed { outcome != nil }
        }
        guard case .failure(.overloaded)? = outcome else {
            Issue.record("the outcome is \(String(describing: outcome))")
            return
        }
        #expect(lone.handle.slots[0].pipeline?.held.isEmpty == true)
    }
}
#endif
