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
    ///
    /// Also an error that the server has sent while a connection was being made.
    case statement(SQLState, String)
    /// The connection could not be made, or is lost.
    case connection(String)
    /// No answer came in time.
    case timedOut(String)
    /// It cannot be used as it is, or has sent something that the protocol or our statements do not allow.
    case unexpected(String)

    var description: String { text + (state?.advice.map { "; \($0)" } ?? "") }

    /// Without advice.
    var text: String {
        switch self {
        case .statement(let state, let text): "\(text) (SQLSTATE \(state))"
        case .connection(let text), .timedOut(let text), .unexpected(let text): text
        }
    }

    /// Whether nothing listens at any address of the host.
    ///
    /// The library tells of each address that it has tried, and of none that it could not try within the time.
    var isRefusedConnection: Bool {
        guard case .connection(let text) = self else { return false }
        let attempts = text.ranges(of: " failed: ")
        return !attempts.isEmpty
            && attempts.allSatisfy { text[$0.upperBound...].hasPrefix(SystemError.reason(ECONNREFUSED)) }
    }

    var state: SQLState? {
        if case .statement(let state, _) = self { state } else { nil }
    }

    /// Whether the server has answered.
    var isFromServer: Bool {
        switch self {
        case .statement, .unexpected: true
        case .connection, .timedOut: false
        }
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

extension PostgresError {
    /// Of a connection that could not be made.
    ///
    /// - Parameter message: The library's verbose one: an error that the server has sent has a line like
    ///   `... failed: FATAL:  28P01: password authentication failed for user "a"`, and one about its source code after it.
    init(refusal message: String) {
        var (code, lines) = (String?.none, [Substring]())
        for line in message.split(whereSeparator: \.isNewline) where !line.hasPrefix("LOCATION:  ") {
            if let range = line.firstRange(of: ":  "), let found = SQLState(prefixOf: line[range.upperBound...]) {
                code = found.code
                let text = line[range.upperBound...].dropFirst(found.code.count + 2)
                lines.append(line[..<range.lowerBound] + ": " + text)
            } else {
                lines.append(line)
            }
        }
        var text = PostgresConnection.cleaned(lines.joined(separator: "\n"))
        // The library does not say more (fe-secure-openssl.c).
        if text.contains("certificate verify failed") {
            text += """
                ; the server's certificate has expired, or is not of the authority in sslrootcert: openssl s_client \
                -starttls postgres -connect HOST:PORT shows it
                """
        }
        if let code {
            self = .statement(SQLState(code), text)
        } else {
            self = Self.ofSettings.contains { text.contains($0) } ? .unexpected(text) : .connection(text)
        }
    }

    /// Parts of what the library says itself of settings, here or on the server, that do not fit.
    ///
    /// Those do not mend themselves, as a network does. They have no code (fe-connect.c, fe-auth.c, fe-secure-openssl.c).
    private static let ofSettings = [
        "certificate", "private key file", "no password supplied", "server does not support SSL", "SSL error: ",
        "authentication method",
    ]
}

extension SQLState {
    /// A code with a colon after it.
    fileprivate init?(prefixOf text: Substring) {
        let code = text.prefix(5)
        guard code.count == 5, code.allSatisfy({ $0.isASCII && ($0.isUppercase || $0.isNumber) }),
            text.dropFirst(5).hasPrefix(": ")
        else { return nil }
        self.init(String(code))
    }
}

extension StoreFault {
    /// - Parameters:
    ///   - host: Where the statement was sent; nil if the text says it.
    ///   - isOfOneToken: Whether it concerns one row only.
    init(_ error: PostgresError, at host: String? = nil, isOfOneToken: Bool = false) {
        self.init(
            "PostgreSQL\(host.map { " at \($0)" } ?? ""): \(error)",
            cause: error.state == .diskFull ? .diskFull : .database, mayRetry: error.mayRetry,
            isOfOneToken: isOfOneToken)
    }

    /// Of a commit that came with a warning, such as that the wait for the standby was canceled.
    init(unacknowledged warning: PostgresError, at host: String) {
        self.init(
            """
            PostgreSQL at \(host) has committed the write with a warning, so it may not be on a second machine: \(warning)
            """, mayRetry: true)
    }

    /// Of a request without an answer.
    ///
    /// - Parameter host: The primary, if one is known.
    init(unansweredBy host: String?, within limit: Duration, _ isWrite: Bool) {
        let hint =
            isWrite
            ? "; if it answers reads, its commits wait for a standby: see pg_stat_replication there" : ""
        self.init(
            "PostgreSQL\(host.map { " at \($0)" } ?? "") has not answered within \(limit)\(hint)", mayRetry: true)
    }
}

/// The code of an error or a warning (postgresql.org/docs/current/errcodes-appendix.html): five letters or digits.
struct SQLState: Hashable, Sendable, CustomStringConvertible {
    let code: String

    init(_ code: String) {
        self.code = code
    }

    var description: String { code }

    /// The first two characters: the class of related codes.
    var errorClass: Substring { code.prefix(2) }

    static let serializationFailure = SQLState("40001")
    static let deadlock = SQLState("40P01")
    /// The server takes no writes: it is a standby, or it was made read-only.
    static let readOnly = SQLState("25006")
    static let tooManyConnections = SQLState("53300")
    static let diskFull = SQLState("53100")
    static let canceled = SQLState("57014")
    static let adminShutdown = SQLState("57P01")
    static let crashShutdown = SQLState("57P02")
    static let cannotConnectNow = SQLState("57P03")
    static let idleInTransaction = SQLState("25P03")
    static let wrongPassword = SQLState("28P01")
    static let wrongAuthorization = SQLState("28000")
    /// A row refers to a key that was retired, or a key that is to be retired is needed.
    static let foreignKeyViolation = SQLState("23503")
    static let missingDatabase = SQLState("3D000")
    static let missingTable = SQLState("42P01")
    static let missingColumn = SQLState("42703")
    static let noPrivilege = SQLState("42501")
    /// A lock was not free within `lock_timeout`.
    static let lockNotAvailable = SQLState("55P03")
    /// Prepared statements that are missing or there already: what a pooler does that shares connections between transactions
    /// and does not know of prepared statements.
    static let missingStatement = SQLState("26000")
    static let duplicateStatement = SQLState("42P05")

    /// Whether the same statement may succeed when it is repeated on the same server.
    var isTransient: Bool { self == .serializationFailure || self == .deadlock }

    /// Whether it is about the data of one row (cardinality, data, integrity), so that statements on others may succeed.
    var isOfOneRow: Bool { ["21", "22", "23"].contains(errorClass) }

    /// Whether the server closes the connection after an error with this code.
    var endsSession: Bool { errorClass == "57" && self != .canceled || self == .idleInTransaction }

    /// Whether another connection is needed: the server ends, is starting, is no primary, or the connection is lost.
    var needsOtherConnection: Bool {
        switch self {
        case .readOnly, .adminShutdown, .crashShutdown, .cannotConnectNow, .idleInTransaction, .missingStatement: true
        default: errorClass == "08"
        }
    }
}

extension SQLState {
    /// What an operator can do about an error with this code; nil where the server's message says all there is to say.
    var advice: String? {
        switch self {
        case .wrongPassword:
            "check the password: in libpq's passfile, PGPASSWORD or the credential token-cache.postgresql-password"
        case .wrongAuthorization: "check the role in store.url, and the server's pg_hba.conf"
        case .missingDatabase: "check the name of the database in store.url, or make it"
        case .tooManyConnections:
            "raise max_connections there, or lower store.connections, of which each loop of each server takes as many"
        case .diskFull: "free room on the disk of that server, or enlarge it"
        case .missingTable, .missingColumn: "run token-cache migrate"
        case .foreignKeyViolation: "the key that has sealed the row was retired meanwhile; try again"
        case .noPrivilege: "grant this server's role SELECT, INSERT, UPDATE and DELETE on all tables of token-cache"
        case .missingStatement, .duplicateStatement:
            "a pooler in between shares connections among clients: set pool_mode = session there"
        default: nil
        }
    }
}
#endif
