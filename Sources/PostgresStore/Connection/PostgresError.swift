#if PostgreSQL
internal import Glibc
internal import System
internal import TokenStore

/// What the database or the way to it has refused.
///
/// Its texts are for operators and contain no values of rows: of the server's messages only the primary one is taken, whose
/// detail would name them.
enum PostgresError: Error, Hashable, Sendable, CustomStringConvertible {
    /// A statement failed; the connection goes on, unless the code says otherwise.
    case statement(SQLState, String)
    /// The connection could not be made, or is lost.
    case connection(String)
    /// No answer came in time.
    case timedOut(String)
    /// The server has sent something that the protocol or our statements do not allow.
    case unexpected(String)

    var description: String {
        switch self {
        case .statement(let state, let text): "\(text) (SQLSTATE \(state))"
        case .connection(let text), .timedOut(let text), .unexpected(let text): text
        }
    }

    /// Whether nothing listens at the address.
    var isRefusedConnection: Bool {
        if case .connection(let text) = self { text.contains(SystemError.reason(ECONNREFUSED)) } else { false }
    }

    var state: SQLState? {
        if case .statement(let state, _) = self { state } else { nil }
    }

    /// Whether the connection is of no use any more.
    var endsConnection: Bool {
        switch self {
        case .statement(let state, _): state.needsOtherConnection
        case .connection, .timedOut, .unexpected: true
        }
    }

    /// Whether the same statement may succeed later without intervention.
    var mayRetry: Bool {
        switch self {
        case .statement(let state, _): state.isTransient || state.needsOtherConnection || state == .tooManyConnections
        case .connection, .timedOut: true
        case .unexpected: false
        }
    }
}

extension StoreFault {
    init(_ error: PostgresError) {
        self.init(
            "PostgreSQL: \(error)", cause: error.state == .diskFull ? .diskFull : .database, mayRetry: error.mayRetry)
    }
}

extension StoreFault {
    /// Of a commit that came with a warning, such as that the wait for the standby was canceled.
    init(unacknowledged warning: PostgresError) {
        self.init(
            "PostgreSQL has committed the write with a warning, so it may not be on a second machine: \(warning)",
            mayRetry: true)
    }
}

extension StoreOpenError {
    init(_ error: PostgresError) {
        self = .store(StoreFault(error))
    }
}
#endif
