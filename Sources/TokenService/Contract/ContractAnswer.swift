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

extension Response {
    /// An answer of the contract.
    package init(_ answer: ContractAnswer) {
        self.init(body: answer.json, code: answer.code)
    }

    /// The answer to a request that the server, and not its client or what is stored, is the reason to fail.
    ///
    /// Its body is the one that `token.php` gives for an id without a token. `Retry-After` (RFC 9110, section 10.2.3), which no
    /// other answer with status 200 has, tells the two apart.
    static func failure(isWrite: Bool) -> Response {
        var response = Response(isWrite ? .writeFailed : .notFound)
        response.extras = Extras(retryAfter: retryAfter)
        return response
    }

    /// Seconds: a store works again two seconds after the cause has gone, at most.
    private static let retryAfter = 2

    /// An error of HTTP in the contract's shape.
    package init(_ status: Status, _ message: String, challenge: Challenge? = nil) {
        self.init(status: status, body: ContractAnswer.httpError(status: status.rawValue, message: message).json)
        if let challenge { extras = Extras(challenge: challenge) }
    }
}

/// The answer to a GET with a long token info, made in pieces while the client reads them.
///
/// It takes the memory of the token info; the whole answer could take six times as much.
package struct LongAnswer: Sendable {
    private let tokenInfo: [UInt8]
    /// Bytes of token info that are in the pieces so far.
    private var position = 0
    /// Bytes of the whole answer.
    package let length: Int
    /// The number of the version that it shows; nil for none.
    package internal(set) var version: Int64?
    /// Whether the last piece has been made.
    package private(set) var isComplete = false

    /// Bytes of token info per piece, so few that the output buffer need not grow for it.
    private static let pieceLength = 16 << 10

    init(_ tokenInfo: [UInt8], version: Int64? = nil) {
        self.tokenInfo = tokenInfo
        self.version = version
        length =
            ContractAnswer.startOfFound.count + JSONText.escapedLength(of: tokenInfo.span)
            + ContractAnswer.endOfFound.count
    }

    /// Bytes of memory that it takes.
    package var capacity: Int { tokenInfo.capacity }

    /// Appends the next piece, at most some 100 KB; must not be called after the last one.
    package mutating func appendPiece(to output: inout [UInt8]) {
        precondition(!isComplete, "the last piece comes once")
        if position == 0 { output.append(contentsOf: ContractAnswer.startOfFound) }
        let end = Self.end(ofPieceFrom: position, in: tokenInfo.span)
        JSONText.appendEscaped(tokenInfo.span.extracting(position..<end), to: &output)
        position = end
        if end == tokenInfo.count {
            output.append(contentsOf: ContractAnswer.endOfFound)
            isComplete = true
        }
    }

    /// The end of the piece from an index, between two characters.
    private static func end(ofPieceFrom start: Int, in text: Span<UInt8>) -> Int {
        let longest = start + pieceLength
        guard longest < text.count else { return text.count }
        // A character has at most three continuation bytes. If there are four in a row, the text is not UTF-8, and it may be
        // cut before the fourth.
        for end in (longest - 3...longest).reversed() where text[end] & 0xc0 != 0x80 { return end }
        return longest
    }
}
