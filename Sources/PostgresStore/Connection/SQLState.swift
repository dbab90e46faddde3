#if PostgreSQL
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
    /// Nobody can tell whether the statement was carried out.
    static let completionUnknown = SQLState("40003")
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
    /// A role that is named does not exist.
    static let missingObject = SQLState("42704")
    /// A lock was not free within `lock_timeout`.
    static let lockNotAvailable = SQLState("55P03")
    /// Prepared statements that are missing or there already: what a pooler does that shares connections between transactions
    /// and does not know of prepared statements.
    static let missingStatement = SQLState("26000")
    static let duplicateStatement = SQLState("42P05")

    /// Whether the same statement may succeed when it is repeated on the same server.
    var isTransient: Bool { [.serializationFailure, .deadlock, .completionUnknown].contains(self) }

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
#endif
