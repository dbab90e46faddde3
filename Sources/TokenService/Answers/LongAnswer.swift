/// The answer to a GET that has found a long token info, made in pieces as the client takes it.
///
/// Until then it takes the memory of the token info, where the whole answer could take six times as much.
package struct LongAnswer: Sendable {
    private let tokenInfo: [UInt8]
    /// How much of it is in the pieces so far.
    private var position = 0
    /// Bytes of the whole answer.
    package let length: Int
    /// The last piece has been made.
    package private(set) var isComplete = false

    /// Bytes of token info that go into one piece: few, so that the buffer for it is used again rather than made anew.
    private static let pieceLength = 16 << 10

    init(_ tokenInfo: [UInt8]) {
        self.tokenInfo = tokenInfo
        length =
            ContractAnswer.startOfFound.count + JSONText.escapedLength(of: tokenInfo.span)
            + ContractAnswer.endOfFound.count
    }

    /// Bytes of memory that it takes.
    package var capacity: Int { tokenInfo.capacity }

    /// Appends the next piece, of some 100 KB at most; not after the last one.
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

    /// Where a piece ends, between two characters.
    private static func end(ofPieceFrom start: Int, in text: Span<UInt8>) -> Int {
        let longest = start + pieceLength
        guard longest < text.count else { return text.count }
        // At most three continuation bytes belong to one character. Where there are four in a row the text is not
        // UTF-8, and the fourth begins no character and ends none: the text may be cut before it.
        for end in (longest - 3...longest).reversed() where text[end] & 0xc0 != 0x80 { return end }
        return longest
    }
}
