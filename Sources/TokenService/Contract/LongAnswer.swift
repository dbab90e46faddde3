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
