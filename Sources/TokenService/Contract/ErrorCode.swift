package import HTTP

/// The error code that the body of an answer with status 200 holds; requests are counted by it.
///
/// A new one also needs an outcome in `Response.Outcome` and a column in `RequestCounts`.
package enum ErrorCode: UInt16, Sendable, CaseIterable {
    /// The request succeeded, or its status says it all.
    case none = 0
    case invalidInput = 30001
    /// A credential in `unique_id` is not valid: the body says 50002, or 50001 to a write, as old apps know nothing else.
    case denied = 40100
    case writeFailed = 50001
    case notFound = 50002
    case unsupportedMethod = 50003

    /// The number by which an answer is counted and logged: its code, or for an error of HTTP the status times 100; 0 if it is no
    /// error.
    package static func number(of status: Status, _ code: UInt16) -> UInt16 {
        status == .ok ? code : status.rawValue < 400 ? 0 : status.rawValue * 100
    }
}

extension Response {
    /// How a request ended.
    package enum Outcome: Sendable {
        case done
        /// Nothing is stored under the id.
        case notFound
        /// The request, or the credential in it, is not accepted.
        case refused
        /// The server could not do it.
        case failed

        /// The outcome that a status and, with status 200, a code stand for.
        package init(_ status: Status, _ code: ErrorCode) {
            self =
                switch code {
                case .none: status.rawValue < 400 ? .done : status.rawValue < 500 ? .refused : .failed
                case .notFound: .notFound
                case .invalidInput, .denied, .unsupportedMethod: .refused
                case .writeFailed: .failed
                }
        }
    }

    /// With status 200, `Retry-After` marks a failure, whose body is that of an id under which nothing is stored.
    package var outcome: Outcome {
        status == .ok && extras?.retryAfter != nil ? .failed : Outcome(status, errorCode)
    }

    package var errorCode: ErrorCode {
        get { ErrorCode(rawValue: code) ?? .none }
        set { code = newValue.rawValue }
    }
}
