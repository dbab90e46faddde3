package import HTTP

/// The answers of the contract and their JSON, with the keys in the order of `token.php`.
package enum ContractAnswer: Hashable, Sendable {
    case stored
    /// 30001: a parameter is missing, empty, too long or not UTF-8.
    case invalidInput
    /// 50001: storing failed.
    case writeFailed
    /// 50002: nothing is stored under the id, or reading failed.
    case notFound
    /// 50003, with the method as received.
    case unsupportedMethod([UInt8])
    /// An HTTP error in the contract's shape, its code the status times 100.
    case httpError(status: UInt16, message: String)

    /// The body of the answer.
    ///
    /// The answer with a token info is built by `appendFound`, without this enum.
    package var json: [UInt8] {
        switch self {
        case .stored: Constants.stored
        case .invalidInput: Constants.invalidInput
        case .writeFailed: Constants.writeFailed
        case .notFound: Constants.notFound
        case .unsupportedMethod(let method):
            Self.error(.unsupportedMethod, Array("Unsupported method: ".utf8) + method)
        case .httpError(let status, let message):
            Self.error(number: status * 100, Array(message.utf8))
        }
    }

    /// The error code of an answer with status 200.
    package var code: ErrorCode {
        switch self {
        case .stored, .httpError: .none
        case .invalidInput: .invalidInput
        case .writeFailed: .writeFailed
        case .notFound: .notFound
        case .unsupportedMethod: .unsupportedMethod
        }
    }

    /// Appends `{"status":"true","token_info":"..."}`.
    static func appendFound(_ tokenInfo: [UInt8], to body: inout [UInt8]) {
        body.append(contentsOf: startOfFound)
        JSONText.appendEscaped(tokenInfo, to: &body)
        body.append(contentsOf: endOfFound)
    }

    /// What stands before and after the escaped token info.
    static var startOfFound: [UInt8] { Constants.found }
    static var endOfFound: [UInt8] { Constants.endOfFound }

    private static func error(_ code: ErrorCode, _ message: [UInt8]) -> [UInt8] {
        error(number: code.rawValue, message)
    }

    private static func error(number: UInt16, _ message: [UInt8]) -> [UInt8] {
        var body = Array(#"{"status":"false","errorCode":"\#(number)","errorMessage":""#.utf8)
        JSONText.appendEscaped(message, to: &body)
        body.append(contentsOf: Array(#""}"#.utf8))
        return body
    }

    private enum Constants {
        static let stored = Array(#"{"status":"true"}"#.utf8)
        static let found = Array(#"{"status":"true","token_info":""#.utf8)
        static let endOfFound = Array(#""}"#.utf8)
        static let invalidInput = error(.invalidInput, Array("Invalid data input.".utf8))
        static let writeFailed = error(.writeFailed, Array("Could not write file contents.".utf8))
        static let notFound = error(.notFound, Array("Could not read file contents or data empty.".utf8))
    }
}
