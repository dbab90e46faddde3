#if PostgreSQL
internal import Glibc
internal import System

/// A connection for a thread that may wait, though never longer than it says.
///
/// Not in pipeline mode until `intoPipelineMode`. Used by one thread at a time.
struct BlockingSession: Sendable {
    let connection: PostgresConnection

    /// Connects.
    ///
    /// Only the lookup of host names, which the system's resolver limits, may take longer than the deadline.
    init(
        connectingWith parameters: [ConnectionParameter], until deadline: MonotonicTime
    ) throws(PostgresError) {
        connection = try PostgresConnection(connectingWith: parameters)
        // As libpq asks for it: the first wait is for the socket to become writable.
        var progress = PostgresConnection.Progress.writable
        while true {
            switch progress {
            case .connected: return
            case .readable: try Self.wait(connection, Int16(POLLIN), until: deadline)
            case .writable: try Self.wait(connection, Int16(POLLOUT), until: deadline)
            }
            progress = try connection.poll()
        }
    }

    /// Runs a statement outside of pipeline mode.
    ///
    /// - Parameters:
    ///   - sql: One statement, without values in its text.
    ///   - parameters: Their types must be told by the statement.
    ///   - deadline: When the answer must be there; after that the session is of no use any more.
    ///   - read: Takes the answer.
    func run<Value>(
        _ sql: String, _ parameters: Parameters = Parameters(), until deadline: MonotonicTime,
        _ read: (borrowing QueryResult) throws(PostgresError) -> Value
    ) throws(PostgresError) -> Value {
        try connection.send(sql: sql, parameters)
        try flush(until: deadline)
        var value: Value?
        var failure: PostgresError?
        while true {
            try awaitResult(until: deadline)
            guard let result = connection.nextResult() else { break }
            switch result.kind {
            case .rows, .done: value = try read(result)
            case .failed(let error): failure = failure ?? error
            case .synchronized, .skipped: failure = failure ?? .unexpected("an answer of pipeline mode outside of it")
            }
        }
        if let failure { throw failure }
        guard let value else { throw .unexpected("no answer to a statement") }
        return value
    }

    /// Runs a statement whose answer does not matter.
    func run(
        _ sql: String, _ parameters: Parameters = Parameters(), until deadline: MonotonicTime
    ) throws(PostgresError) {
        try run(sql, parameters, until: deadline) { (_) throws(PostgresError) in }
    }

    /// Limits how long statements of this session wait for a lock, unless the role has a limit of its own; see `parameters`.
    ///
    /// A server's process goes on waiting when its connection is closed: without a limit, each attempt to store a token while
    /// somebody keeps a lock would leave one behind, until the server takes no connection any more.
    ///
    /// In another isolation than this, a statement that has waited for a lock would not see what it has waited for.
    static let lockLimit = """
        SELECT set_config('default_transaction_isolation', 'read committed', false),
        CASE WHEN current_setting('lock_timeout') = '0' THEN set_config('lock_timeout', $1::text, false) END
        """

    static func parameters(ofLockLimit limit: Duration) -> Parameters {
        var parameters = Parameters()
        parameters.append("\(max(1, Nanoseconds(limit).count / 1_000_000))")
        return parameters
    }

    /// Runs statements as one transaction; rolls back if the body throws.
    func transaction<Value>(
        until deadline: MonotonicTime, _ body: () throws(PostgresError) -> Value
    ) throws(PostgresError) -> Value {
        try run("BEGIN", until: deadline)
        do throws(PostgresError) {
            let value = try body()
            _ = connection.takeWarning()
            try run("COMMIT", until: deadline)
            // Such as one that the standby did not acknowledge.
            if let warning = connection.takeWarning() { throw warning }
            return value
        } catch {
            if !connection.isLost { try? run("ROLLBACK", until: deadline) }
            throw error
        }
    }

    /// Waits until the whole of an answer is there.
    func awaitResult(until deadline: MonotonicTime) throws(PostgresError) {
        while connection.isBusy {
            try Self.wait(connection, Int16(POLLIN), until: deadline)
            try connection.receive()
        }
    }

    /// Sends everything.
    func flush(until deadline: MonotonicTime) throws(PostgresError) {
        while try !connection.flush() {
            // The server may have to send before it goes on reading.
            try Self.wait(connection, Int16(POLLIN | POLLOUT), until: deadline)
            try connection.receive()
        }
    }

    /// Whether the server has sent something that nobody has asked for, such as that it closes the connection.
    var hasUnexpectedInput: Bool {
        var descriptor = pollfd(fd: connection.socket, events: Int16(POLLIN), revents: 0)
        return unsafe poll(&descriptor, 1, 0) != 0
    }

    private static func wait(
        _ connection: PostgresConnection, _ events: Int16, until deadline: MonotonicTime
    ) throws(PostgresError) {
        while true {
            let left = deadline - .now
            guard left.count > 0 else { throw .timedOut("\(connection.address) has not answered in time") }
            var descriptor = pollfd(fd: connection.socket, events: events, revents: 0)
            let milliseconds = Int32(clamping: (left.count + 999_999) / 1_000_000)
            let count = unsafe poll(&descriptor, 1, milliseconds)
            if count > 0 { return }
            if count < 0, errno != EINTR { throw .connection("poll: \(SystemError.reason(errno))") }
        }
    }
}
#endif
