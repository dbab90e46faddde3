package import HTTP

/// The answers of the contract, with the keys of their JSON in the order of `token.php`.
extension Response {
    static let stored = Response(body: Array(#"{"status":"true"}"#.utf8))
    /// 30001: a parameter is missing, empty, too long or not UTF-8.
    static let invalidInput = Response(.invalidInput, "Invalid data input.")
    /// 50001: storing failed.
    static let writeFailed = Response(.writeFailed, "Could not write file contents.")
    /// 50002: nothing is stored under the id, or reading failed.
    static let notFound = Response(.notFound, "Could not read file contents or data empty.")

    /// 50003, with the method as received.
    static func unsupportedMethod(_ method: [UInt8]) -> Response {
        Response(.unsupportedMethod, "Unsupported method: \(String(decoding: method, as: UTF8.self))")
    }

    /// The answer to a request that fails because of the server, not because of its client or of what is stored.
    ///
    /// Its body is the one that `token.php` gives for an id without a token, or for a failed write. `Retry-After` (RFC 9110,
    /// section 10.2.3), which no other answer with status 200 has, tells it apart from an id without a token.
    static func failure(isWrite: Bool) -> Response {
        var response = isWrite ? writeFailed : notFound
        response.extras = Extras(retryAfter: retryAfter)
        return response
    }

    /// In seconds: a store works again at most two seconds after the cause of its failure is gone.
    private static let retryAfter = 2

    /// An error of HTTP in the contract's shape, its code the status times 100.
    init(_ status: Status, _ message: String, challenge: Challenge? = nil) {
        self.init(status: status, body: Self.error(status.rawValue * 100, message))
        if let challenge { extras = Extras(challenge: challenge) }
    }

    /// The answer to a request that could not be read, or must not be served.
    package init(_ refusal: Refusal) {
        self.init(refusal.status, refusal.message)
    }

    private init(_ code: ErrorCode, _ message: String) {
        self.init(body: Self.error(code.rawValue, message), code: code.rawValue)
    }

    private static func error(_ number: UInt16, _ message: String) -> [UInt8] {
        var body = Array(#"{"status":"false","errorCode":"\#(number)","errorMessage":""#.utf8)
        JSONText.appendEscaped(Array(message.utf8), to: &body)
        return body + #""}"#.utf8
    }
}

/// The JSON of the answer to a GET that has found something.
enum FoundAnswer {
    /// What stands before and after the escaped token info.
    static let start = Array(#"{"status":"true","token_info":""#.utf8)
    static let end = Array(#""}"#.utf8)

    static func append(_ tokenInfo: [UInt8], to body: inout [UInt8]) {
        body.append(contentsOf: start)
        JSONText.appendEscaped(tokenInfo, to: &body)
        body.append(contentsOf: end)
    }
}

/// The answer to a GET with a long token info, measured in steps, and then made in pieces while the client reads them.
///
/// It takes the memory of the token info; the whole answer could take six times as much.
package struct LongAnswer: Sendable {
    private let tokenInfo: [UInt8]
    /// Bytes of token info that have been measured, and then those that are in the pieces so far.
    private var position = 0
    /// Bytes of the whole answer, once all is measured.
    package private(set) var length = FoundAnswer.start.count + FoundAnswer.end.count
    /// The number of the version that it shows; nil for none.
    package let version: Int64?
    /// Whether the last piece has been made.
    package private(set) var isComplete = false

    /// Bytes of token info that are measured in one step: about a millisecond if all are beyond ASCII.
    private static let measuredLength = 256 << 10
    /// Bytes of token info per piece, so few that the output buffer need not grow for it.
    private static let pieceLength = 16 << 10

    init(_ tokenInfo: [UInt8], version: Int64? = nil) {
        self.tokenInfo = tokenInfo
        self.version = version
    }

    /// Bytes of memory that it takes.
    package var capacity: Int { tokenInfo.capacity }

    /// Does a step of measuring, and returns whether all is measured, after which the pieces can be made.
    mutating func measure() -> Bool {
        let end = JSONText.end(ofPartFrom: position, of: tokenInfo.span, longest: Self.measuredLength)
        length += JSONText.escapedLength(of: tokenInfo.span.extracting(position..<end))
        position = end < tokenInfo.count ? end : 0
        return position == 0
    }

    /// Appends the next piece, at most some 100 KB; must not be called after the last one.
    package mutating func appendPiece(to output: inout [UInt8]) {
        precondition(!isComplete, "the last piece comes once")
        if position == 0 { output.append(contentsOf: FoundAnswer.start) }
        let end = JSONText.end(ofPartFrom: position, of: tokenInfo.span, longest: Self.pieceLength)
        JSONText.appendEscaped(tokenInfo.span.extracting(position..<end), to: &output)
        position = end
        if end == tokenInfo.count {
            output.append(contentsOf: FoundAnswer.end)
            isComplete = true
        }
    }
}
