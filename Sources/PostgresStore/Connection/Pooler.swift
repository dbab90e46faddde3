#if PostgreSQL
internal import Synchronization
internal import System

/// What is known of a program between us and a server that passes statements on, such as PgBouncer.
enum Pooler: Hashable, Sendable {
    case none
    /// Prepared statements work behind it.
    case usable
    /// It shares connections among clients, and does not know of their prepared statements.
    case withoutPreparedStatements
    /// There was no second connection to find that out with.
    case unknown
}

extension Pooler {
    /// Finds out whether prepared statements work behind a pooler.
    ///
    /// One that shares connections has a statement prepared on a server's connection that it then gives to a transaction of
    /// somebody else, here of ourselves. If others use the pooler at that moment, it may give another one: hence two attempts.
    ///
    /// - Parameters:
    ///   - limit: For each step.
    ///   - connect: Makes a session behind the pooler.
    static func probe(
        within limit: Duration, _ connect: () throws(PostgresError) -> BlockingSession
    ) throws(PostgresError) -> Pooler {
        for _ in 0..<2 {
            let outcome = try probeOnce(within: Nanoseconds(limit), connect)
            guard outcome == .usable else { return outcome }
        }
        return .usable
    }

    private static func probeOnce(
        within limit: Nanoseconds, _ connect: () throws(PostgresError) -> BlockingSession
    ) throws(PostgresError) -> Pooler {
        let (first, second) = (try connect(), try connect())
        try first.connection.sendPrepare(statement, "SELECT 1")
        try finish(first, until: .now + limit)
        do throws(PostgresError) {
            try second.run("BEGIN", until: .now + limit)
        } catch {
            return .unknown
        }
        defer { try? second.run("ROLLBACK", until: .now + limit) }
        do throws(PostgresError) {
            try first.connection.send(statement, Parameters())
            try finish(first, until: .now + limit)
            return .usable
        } catch {
            if error.state == .missingStatement { return .withoutPreparedStatements }
            guard case .timedOut = error else { throw error }
            return .unknown
        }
    }

    private static let statement = "token_cache_probe"

    /// Takes the answer to a statement.
    private static func finish(_ session: BlockingSession, until deadline: MonotonicTime) throws(PostgresError) {
        try session.flush(until: deadline)
        var failure: PostgresError?
        while true {
            try session.awaitResult(until: deadline)
            guard let result = session.connection.nextResult() else { break }
            if case .failed(let error) = result.kind { failure = failure ?? error }
        }
        if let failure { throw failure }
    }
}

/// The hosts with a pooler behind which prepared statements were found to work.
///
/// Any thread.
final class UsablePoolers: Sendable {
    private let hosts = Mutex<Set<String>>([])

    func contains(_ host: String) -> Bool { hosts.withLock { $0.contains(host) } }

    func insert(_ host: String) {
        hosts.withLock { _ = $0.insert(host) }
    }
}
#endif
