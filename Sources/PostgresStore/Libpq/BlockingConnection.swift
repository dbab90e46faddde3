#if PostgreSQL
import Glibc
import System

/// A connection for a thread that may block, but never beyond a deadline.
///
/// Not in pipeline mode until `enterPipelineMode`. Used by one thread at a time.
struct BlockingConnection: Sendable {
    let postgres: PostgresConnection
    /// When every answer must have arrived.
    ///
    /// After a missed deadline, the connection can no longer be used.
    var deadline: MonotonicTime

    /// Connects.
    ///
    /// Only the lookup of host names may take longer than the deadline: the system's resolver has limits of its own.
    init(_ parameters: [ConnectionParameter], until deadline: MonotonicTime) throws(PostgresError) {
        postgres = try PostgresConnection(connectingWith: parameters)
        self.deadline = deadline
        // libpq demands that the first wait is for the socket to become writable (PQconnectPoll).
        var events: Int32? = POLLOUT
        while let awaited = events {
            try wait(awaited)
            events = try postgres.poll()
        }
    }

    /// The same connection with another deadline.
    func until(_ deadline: MonotonicTime) -> BlockingConnection {
        var connection = self
        connection.deadline = deadline
        return connection
    }

    /// Runs a statement outside of pipeline mode.
    ///
    /// - Parameters:
    ///   - sql: One statement, without values in its text.
    ///   - parameters: The statement must state their types.
    @discardableResult
    func run(_ sql: String, _ parameters: Parameters = []) throws(PostgresError) -> QueryResult {
        try postgres.send(sql: sql, parameters)
        return try answer()
    }

    /// Prepares a statement under a name, outside of pipeline mode.
    func prepare(_ name: String, _ sql: String) throws(PostgresError) {
        try postgres.sendPrepare(name, sql)
        _ = try answer()
    }

    /// Waits for the answer to a statement outside of pipeline mode.
    private func answer() throws(PostgresError) -> QueryResult {
        try flush()
        var answer: QueryResult?
        var failure: PostgresError?
        // Reads to the end of the answer, so that a warning that came with the commit is received.
        while true {
            while postgres.isBusy {
                try wait(POLLIN)
                try postgres.receive()
            }
            guard let result = postgres.nextResult() else { break }
            if case .failed(let error) = result.kind {
                failure = failure ?? error
            } else {
                answer = consume result
            }
        }
        if let failure { throw failure }
        guard let answer = answer.take() else { throw .unexpected("no answer to a statement") }
        return answer
    }

    /// Runs a statement and returns the integer or boolean in its first row; nil if that is NULL, or if there is no row.
    func integer(_ sql: String, _ parameters: Parameters = []) throws(PostgresError) -> Int64? {
        let result = try run(sql, parameters)
        return result.rowCount == 0 ? nil : result.optionalInteger(0, 0)
    }

    /// Sets the parameters that the store relies on, in place of the defaults of the database and the role.
    ///
    /// - the isolation
    /// - a warning if a commit has not waited for the standby
    /// - an error, in place of fewer rows, where row-level security applies
    /// - no limit for idle connections
    /// - time-outs after which PostgreSQL gives up a client that has vanished, perhaps with a lock
    /// - a limit for waiting for a lock, unless the role has one
    ///
    /// A server's process goes on waiting when its connection is closed: without a limit, each attempt to store a token while
    /// another program keeps a lock would leave one behind, until the server accepts no further connection.
    ///
    /// In another isolation, a statement that has waited for a lock would not see what was committed meanwhile.
    func configure(lockTimeout limit: Duration) throws(PostgresError) {
        try run(
            """
            SELECT set_config('default_transaction_isolation', 'read committed', false),
            set_config('client_min_messages', 'warning', false), set_config('row_security', 'off', false),
            set_config('idle_session_timeout', '0', false), set_config('statement_timeout', '0', false),
            set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),
            set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '20000', false),
            CASE WHEN current_setting('lock_timeout') = '0' THEN set_config('lock_timeout', $1::text, false) END
            """, [.text("\(max(1, Nanoseconds(limit).count / 1_000_000))")])
    }

    /// Runs statements as one transaction; rolls back if the body throws.
    func transaction<Value>(_ body: () throws(PostgresError) -> Value) throws(PostgresError) -> Value {
        try run("BEGIN")
        do {
            let value = try body()
            try commit("COMMIT")
            return value
        } catch {
            if !postgres.isLost { _ = try? run("ROLLBACK") }
            throw error
        }
    }

    /// Runs a statement that commits.
    ///
    /// It is an error if the standby did not acknowledge the commit.
    func commit(_ sql: String) throws(PostgresError) {
        _ = postgres.takeWarning()
        try run(sql)
        if let warning = postgres.takeWarning() { throw warning }
    }

    /// Sends all that is still to be sent.
    private func flush() throws(PostgresError) {
        while try !postgres.flush() {
            // The server may have to send before it reads on.
            try wait(POLLIN | POLLOUT)
            try postgres.receive()
        }
    }

    private func wait(_ events: Int32) throws(PostgresError) {
        while true {
            let left = deadline - .now
            guard left.count > 0 else { throw .timedOut("\(postgres.address) has not answered in time") }
            var descriptor = pollfd(fd: postgres.socket, events: Int16(events), revents: 0)
            let milliseconds = Int32(clamping: (left.count + 999_999) / 1_000_000)
            let count = unsafe poll(&descriptor, 1, milliseconds)
            if count > 0 { return }
            if count < 0, errno != EINTR { throw .connection("poll: \(SystemError.reason(errno))") }
        }
    }
}
#endif
