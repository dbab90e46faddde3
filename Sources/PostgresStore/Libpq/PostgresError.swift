#if PostgreSQL
import TokenStore

/// An error of the database, or of a connection to it.
///
/// Its texts are for operators and contain no values of rows: they have the server's primary message, and not its detail, which
/// may quote values.
enum PostgresError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The server has sent an error, to a statement or to an attempt to connect. The connection stays usable, unless the code
    /// says otherwise.
    case statement(SQLState, String)
    /// The connection could not be made, or is lost.
    case connection(String)
    /// No answer came in time.
    case timedOut(String)
    /// The server, its settings or its tables cannot be used as they are, or an answer is not one that we expect; with what an
    /// operator has to do, if that is known.
    case unexpected(String, advice: String? = nil)

    var description: String { text + (state?.advice.map { "; \($0)" } ?? "") }

    /// What is wrong, without advice.
    var text: String {
        switch self {
        case .statement(let state, let text): "\(text) (SQLSTATE \(state))"
        case .connection(let text), .timedOut(let text): text
        case .unexpected(let text, let advice): text + (advice.map { ": \($0)" } ?? "")
        }
    }

    var state: SQLState? {
        if case .statement(let state, _) = self { state } else { nil }
    }

    /// Whether a page of a table or an index is damaged.
    var isOfDamage: Bool { state == .damagedData || state == .damagedIndex }

    /// Whether the server has answered.
    var isFromServer: Bool {
        switch self {
        case .statement, .unexpected: true
        case .connection, .timedOut: false
        }
    }

    /// Whether the connection can no longer be used.
    var endsConnection: Bool { state?.needsOtherConnection ?? true }

    /// Whether the same statement may succeed later without intervention.
    var mayRetry: Bool {
        guard let state else { return !isFromServer }
        return state.isTransient || state.needsOtherConnection || state == .tooManyConnections
    }
}

extension PostgresError {
    /// Why a connection could not be made.
    ///
    /// - Parameter message: libpq's message in its verbose form. For an error that the server has sent, it has a line like
    ///   `... failed: FATAL:  28P01: password authentication failed for user "a"`, and then one about PostgreSQL's source code.
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
        // libpq does not say more (fe-secure-openssl.c).
        if text.contains("certificate verify failed") {
            text += """
                ; the server's certificate has expired, or is not of the authority in sslrootcert: openssl s_client \
                -starttls postgres -connect HOST:PORT shows it
                """
        }
        if text.contains("no password supplied"), let advice = SQLState.wrongPassword.advice { text += "; \(advice)" }
        if let state = code.map(SQLState.init) {
            self =
                state == .noPrivilege
                ? .unexpected(text, advice: "run GRANT CONNECT ON DATABASE ... TO the role of this server")
                : .statement(state, text)
        } else {
            self = Self.ofSettings.contains { text.contains($0) } ? .unexpected(text) : .connection(text)
        }
    }

    /// Parts of libpq's own messages about settings, here or on the server, that prevent a connection (fe-connect.c, fe-auth.c,
    /// fe-secure-openssl.c).
    ///
    /// These messages have no code. Unlike a network's faults, such faults do not pass by themselves.
    private static let ofSettings = [
        "certificate", "private key file", "no password supplied", "server does not support SSL", "SSL error: ",
        "authentication method", "invalid sslmode value", "invalid integer value",
    ]
}

extension SQLState {
    /// Reads a code with a colon after it.
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
    ///   - host: The server that the statement was sent to; nil if the text names it.
    ///   - isOfOneToken: Whether the fault concerns one row only.
    init(_ error: PostgresError, at host: String? = nil, isOfOneToken: Bool = false) {
        self.init(
            "PostgreSQL\(host.map { " at \($0)" } ?? ""): \(error)",
            cause: error.state == .diskFull ? .diskFull : .database, mayRetry: error.mayRetry,
            isOfOneToken: isOfOneToken)
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
    static let crashShutdown = SQLState("57P02")
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
    /// A prepared statement is missing, or exists already: the effect of a pooler that shares connections between transactions and
    /// does not know of prepared statements.
    static let missingStatement = SQLState("26000")
    static let duplicateStatement = SQLState("42P05")

    /// A page of a table or an index is damaged; other pages can be read.
    static let damagedData = SQLState("XX001")
    static let damagedIndex = SQLState("XX002")

    /// The server or the database is not in the state that a statement needs: for example a standby, to which a pooler has sent a
    /// read.
    static let notReady = SQLState("55000")

    /// Whether the same statement may succeed when it is repeated on the same server.
    var isTransient: Bool { self == .serializationFailure || self == .deadlock }

    /// Whether it is about the data of one row (cardinality, data, integrity), so that statements on others may succeed.
    var isOfOneRow: Bool { ["21", "22", "23"].contains(errorClass) }

    /// Whether the server closes the connection after an error with this code.
    var endsSession: Bool { errorClass == "57" && self != .canceled || self == .idleInTransaction }

    /// Whether another connection is needed: the server stops, starts or is no primary, or the connection is lost.
    var needsOtherConnection: Bool {
        endsSession || errorClass == "08" || [.readOnly, .missingStatement, .notReady].contains(self)
    }
}

extension SQLState {
    /// What an operator can do about an error with this code; nil if the server's message says enough.
    var advice: String? {
        switch self {
        case .wrongPassword:
            "check the password: in libpq's passfile, PGPASSWORD or the credential token-cache.postgresql-password"
        case .wrongAuthorization: "check the role in store.url, and the server's pg_hba.conf"
        case .missingDatabase: "check the name of the database in store.url, or make it"
        case .tooManyConnections:
            """
            raise max_connections there or the role's CONNECTION LIMIT, or lower store.connections, of which two loops of each server \
            take as many
            """
        case .diskFull: "free room on the disk of that server, or enlarge it"
        case .missingTable, .missingColumn:
            "check the role's search_path and its USAGE on the schema of the tables, or run token-cache migrate"
        case .canceled:
            "somebody has canceled it there; if that happens to each connection, raise statement_timeout of the role"
        case .foreignKeyViolation: "the key that has sealed the row was retired meanwhile; try again"
        case .noPrivilege:
            """
            grant this server's role SELECT, INSERT, UPDATE and DELETE on all tables of token-cache, and let no row-level security \
            hide rows from it
            """
        case .lockNotAvailable: "another session locks the table, as VACUUM FULL does: see pg_locks there"
        case .damagedData: "check that server's disk, and fail over to a standby that is sound, or restore a backup"
        case .damagedIndex: "check that server's disk, and run REINDEX there"
        case .missingStatement, .duplicateStatement:
            "a pooler in between shares connections among clients: set pool_mode = session there"
        case .notReady:
            "if it is a standby, a pooler in between sends reads to it: set load_balance_mode = off there"
        default: nil
        }
    }
}
#endif
