/// The error code that the body of an answer with status 200 holds; requests are counted by it.
///
/// Whoever adds one decides here whether it is a failure, and `RequestCounts` gives it a column.
package enum ErrorCode: UInt16, Sendable, CaseIterable {
    /// The request succeeded, or its status says it all.
    case none = 0
    case invalidInput = 30001
    /// A credential in `unique_id` is not valid: the body says 50002, or 50001 to a write, as old apps know nothing else.
    case denied = 40100
    case writeFailed = 50001
    case notFound = 50002
    case unsupportedMethod = 50003

    /// The number by which an answer is counted and logged: its code, or that of an error of HTTP; 0 if it is no error.
    package static func number(of status: Status, _ code: ErrorCode) -> UInt16 {
        status == .ok ? code.rawValue : status.rawValue < 400 ? 0 : status.rawValue * 100
    }

    /// Whether a request that is answered with it has failed; one for an id without a token has not.
    package var isFailure: Bool {
        switch self {
        case .none, .notFound, .denied: false
        case .invalidInput, .writeFailed, .unsupportedMethod: true
        }
    }
}
