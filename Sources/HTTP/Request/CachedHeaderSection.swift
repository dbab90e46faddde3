/// The header section of an earlier request on a connection, and what it said.
///
/// A client that keeps its connection sends the same lines with each request; they are then understood by comparing them.
final class CachedHeaderSection: Sendable {
    /// The lines with the empty one that ends them.
    private let lines: [UInt8]
    /// Its state after them.
    let parser: HeadParser
    /// Where they began, from the request's first byte.
    let start: Int

    /// - Parameters:
    ///   - lines: The lines with the empty one that ends them.
    ///   - parser: The parser that has read them.
    ///   - start: Where they began, from the request's first byte.
    init(_ lines: ArraySlice<UInt8>, readBy parser: HeadParser, from start: Int) {
        self.lines = [UInt8](lines)
        self.parser = parser
        self.start = start
    }

    /// Where the same lines end in another request; nil if it has others, or they have not all come yet.
    ///
    /// - Parameters:
    ///   - request: The request's bytes, as far as they have come.
    ///   - start: Where in them the lines begin.
    ///   - limit: The most bytes that a head may have.
    func end(in request: Span<UInt8>, from start: Int, limit: Int) -> Int? {
        let end = start + lines.count
        return end <= limit && end <= request.count && request.equals(ByteRange(start, end), lines) ? end : nil
    }
}
