#if PostgreSQL
import Cryptography
import Synchronization
import System
import Testing

@testable import PostgresStore
@testable import TokenStore

/// What a handle makes of the answers of a server in whose place another one was promoted.
@Suite struct FormerPrimaryTests {
    private let database: TestDatabase
    private let handle: PostgresStoreHandle
    private let outcomes = Outcomes()

    private final class Outcomes: Sendable {
        private let list = Mutex<[String: String]>([:])

        var all: [String: String] { list.withLock(\.self) }

        func note(_ request: String, _ outcome: String) { list.withLock { $0[request] = outcome } }
    }

    init() throws {
        database = try TestDatabase()
        try database.sql("INSERT INTO token VALUES ('a', 1, 1, NULL, 0, 'before'), ('b', 1, 1, NULL, 0, 'before')")
        let target = try ConnectionTarget(url: database.url) { nil }
        let state = PostgresState(
            sealing: Sealing(.clear(index: try .random())), versions: try VersionClock(), hosts: ["former", "present"],
            options: StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: ""))
        ) { _ in }
        state.noteOpened()
        // Never started, so that the test makes the connections.
        let finder = PrimaryFinder(target, state) { _, _ in preconditionFailure("nothing is dialed") }
        handle = try PostgresStoreHandle(
            state,
            PostgresOptions(
                url: database.url, password: { nil }, connections: 1, timeout: .seconds(60), requestLimit: 10,
                durability: .synchronous), finder
        ) { _ in }
    }

    /// A connection to a server that is known by a name; each is the same one.
    private func connection(to server: String, provenAt: MonotonicTime) throws -> ReadyConnection {
        let session = try database.session()
        try session.connection.enterPipelineMode()
        for statement in Statement.allCases { try session.connection.sendPrepare(statement.name, statement.sql) }
        try session.connection.sendPrepare(Fence.name, Fence.sql)
        try session.connection.sendSync()
        try session.flush(until: TestDatabase.deadline)
        var isReady = false
        while !isReady {
            try session.awaitResult(until: TestDatabase.deadline)
            if let result = session.connection.nextResult(), case .synchronized = result.kind { isReady = true }
        }
        return ReadyConnection(
            connection: session.connection, server: ServerIdentity(address: server, timeline: 1), description: server,
            needsProof: true, provenAt: provenAt, canCommit: true)
    }

    private func fetch(_ id: String) throws {
        let found = try handle.fetch(Array(id.utf8), upTo: 100) { [outcomes] in
            Completion { outcome in
                guard case .success(.found(let info, _, _)) = outcome else { return outcomes.note(id, "\(outcome)") }
                outcomes.note(id, String(decoding: info, as: UTF8.self))
            }
        }
        #expect(found == nil)
        handle.flush()
    }

    @Test func `reads that a former primary has answered are not judged by the proof of the present one`() throws {
        let former = try connection(to: "former", provenAt: MonotonicTime(nanoseconds: 1))
        let processID = former.connection.processID
        // As if another handle had just asked for a proof: this one asks only when it has to hold a read.
        #expect(handle.state.proofs.proof(of: former.server).takesRenewal(at: .now + Nanoseconds(.seconds(3_600))))
        handle.take(.connection(former), 0)
        let (outcomes, session) = (outcomes, SessionKey([UInt8](repeating: 1, count: 32).span))
        let foundSession = try handle.findSession(session) {
            Completion { outcomes.note("session", (try? $0.get()) == .nothing ? "none" : "\($0)") }
        }
        handle.flush()
        try fetch("a")
        #expect(foundSession == nil)
        // Both are answered, and then the connection ends.
        let isAnswered = """
            SELECT count(*) FROM pg_stat_activity
            WHERE pid = \(processID) AND state = 'idle' AND query LIKE '%FROM token%'
            """
        while try database.number(isAnswered) != 1 {}
        #expect(try database.sql("SELECT pg_terminate_backend(\(processID), 60000)::text") == [["true"]])
        try database.sql("UPDATE token SET value = 'after'")
        // libpq notices with the second statement that it cannot write any more, which is the proof that the first answer asks for:
        // the second answer is given out when the connection is lost already.
        try fetch("b")
        handle.proceed()
        #expect(outcomes.all.isEmpty)

        handle.take(.connection(try connection(to: "present", provenAt: .now)), 0)
        while outcomes.all.count < 3 { handle.proceed() }
        #expect(outcomes.all == ["session": "none", "a": "after", "b": "after"])
    }
}
#endif
