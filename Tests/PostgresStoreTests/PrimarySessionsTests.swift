#if PostgreSQL
import Dispatch
import Synchronization
import System
import Testing

@testable import PostgresStore
@testable import TokenStore

@Suite struct PrimarySessionsTests {
    private func sessions(_ url: String) throws -> PrimarySessions {
        PrimarySessions(try ConnectionTarget(url: url) { nil }, .local)
    }

    private func processID(_ session: BlockingSession, _ deadline: MonotonicTime) throws(PostgresError) -> Int64 {
        try session.run("SELECT pg_backend_pid()", until: deadline) { (result) throws(PostgresError) in
            result.integer(0, 0)
        }
    }

    private func number(_ sessions: PrimarySessions, within limit: Duration = .seconds(30)) throws -> Int64 {
        try sessions.perform(.reading, within: limit, repeats: false) { (session, deadline) throws(PostgresError) in
            try processID(session, deadline)
        }
    }

    @Test func `a session is kept, and one that the server has closed is replaced`() throws {
        let database = try TestDatabase()
        let sessions = try sessions(database.url)
        let first = try number(sessions)
        #expect(try number(sessions) == first)
        #expect(sessions.facts?.isWritable == true)
        try database.sql("SELECT pg_terminate_backend(\(first), 10000)::text")
        #expect(try number(sessions) != first)
    }

    @Test(arguments: [true, false])
    func `a call whose connection is lost is repeated only if that is harmless`(repeats: Bool) throws {
        let database = try TestDatabase()
        let sessions = try sessions(database.url)
        var attempts = 0
        func run() throws(StoreError) -> Int64 {
            try sessions.perform(within: .seconds(30), repeats: repeats) { (session, deadline) throws(PostgresError) in
                attempts += 1
                if attempts == 1 {
                    try session.run("SELECT pg_terminate_backend(pg_backend_pid())", until: deadline)
                }
                return try processID(session, deadline)
            }
        }
        if repeats {
            #expect(try run() > 0)
            #expect(attempts == 2)
        } else {
            let error = #expect(throws: StoreError.self) { try run() }
            guard case .write(let fault) = error else {
                Issue.record("the error is \(String(describing: error))")
                return
            }
            #expect(fault.mayRetry)
            #expect(attempts == 1)
        }
        #expect(try number(sessions) > 0)
    }

    @Test func `a failed statement is an error at once, and its session is used again`() throws {
        let database = try TestDatabase()
        let sessions = try sessions(database.url)
        let first = try number(sessions)
        let error = #expect(throws: StoreError.self) {
            try sessions.perform(.reading, within: .seconds(30), repeats: true) {
                (session, deadline) throws(PostgresError) in
                try session.run("SELECT * FROM nothing", until: deadline)
            }
        }
        #expect(error?.description.contains("42P01") == true)
        #expect(try number(sessions) == first)
    }

    @Test func `a host that takes no writes is no primary, and the error names each host`() throws {
        let database = try TestDatabase()
        try database.sql("CREATE ROLE reader_\(database.name) LOGIN")
        try database.sql("ALTER ROLE reader_\(database.name) SET default_transaction_read_only = on")
        let readOnly = try sessions(database.url(user: "reader_\(database.name)"))
        let refusal = #expect(throws: StoreError.self) { try number(readOnly, within: .milliseconds(300)) }
        #expect(refusal?.description.contains("takes no writes") == true)
        guard case .unavailable = refusal else {
            Issue.record("the error is \(String(describing: refusal))")
            return
        }
        // The first one refuses connections.
        let folder = database.cluster.folder.replacing("/", with: "%2F")
        let both = try sessions("postgresql://postgres@/\(database.name)?host=%2Fnowhere,\(folder)")
        #expect(try number(both) > 0)
        let none = try sessions("postgresql://postgres@/\(database.name)?host=%2Fnowhere,%2Felsewhere")
        let error = #expect(throws: StoreError.self) { try number(none, within: .milliseconds(300)) }
        let text = error?.description ?? ""
        #expect(text.contains("/nowhere:5432: ") && text.contains("/elsewhere:5432: "), "\(text)")
    }

    @Test func `a call that takes too long fails at its deadline, and the next one has a session of its own`() throws {
        let database = try TestDatabase()
        let sessions = try sessions(database.url)
        let error = #expect(throws: StoreError.self) {
            try sessions.perform(.reading, within: .milliseconds(300), repeats: true) {
                (session, deadline) throws(PostgresError) in
                try session.run("SELECT pg_sleep(600)", until: deadline)
            }
        }
        #expect(error?.description.contains("has not answered in time") == true)
        #expect(try number(sessions) > 0)
        try database.sql(
            "SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'")
    }

    @Test func `long work holds up no other call, and a second one is refused until the first is done`() throws {
        let sessions = try sessions(TestDatabase().url)
        func long<Value>(_ body: () throws(PostgresError) -> Value) throws(StoreError) -> Value {
            try sessions.perform(.reading, within: .seconds(3_600), repeats: true, isLong: true) {
                (session, deadline) throws(PostgresError) in
                _ = try processID(session, deadline)
                return try body()
            }
        }
        func error(_ body: () throws(StoreError) -> Void) -> StoreError? {
            do throws(StoreError) {
                try body()
                return nil
            } catch {
                return error
            }
        }
        let (others, refusal) = try long { () throws(PostgresError) in
            let others = (0..<2).map { _ in try? number(sessions) }
            return (others, error { () throws(StoreError) in try long { () throws(PostgresError) in } })
        }
        #expect(others[0] != nil && others[0] == others[1])
        guard case .refused = refusal else {
            Issue.record("the error is \(String(describing: refusal))")
            return
        }
        try long { () throws(PostgresError) in }
    }

    @Test func `two calls run at the same time, and a third one waits, though not for ever`() async throws {
        let database = try TestDatabase()
        let sessions = try sessions(database.url)
        let (inside, leave) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        async let used = withThrowingTaskGroup(of: Int64.self) { group in
            for _ in 0..<2 {
                group.addTask {
                    try await sessions.performOnThread(within: .seconds(60), repeats: false) {
                        (session, deadline) throws(PostgresError) in
                        inside.signal()
                        leave.wait()
                        return try self.processID(session, deadline)
                    }
                }
            }
            return try await group.reduce(into: Set<Int64>()) { $0.insert($1) }
        }
        try await sessions.onThread { () throws(StoreError) in
            for _ in 0..<2 { inside.wait() }
        }
        let error = #expect(throws: StoreError.self) { try number(sessions, within: .milliseconds(50)) }
        #expect(error?.mayRetry == true)
        for _ in 0..<2 { leave.signal() }
        #expect(try await used.count == 2)
        #expect(try number(sessions) > 0)
        sessions.close()
    }
}
#endif
