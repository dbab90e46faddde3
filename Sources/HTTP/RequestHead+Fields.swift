extension RequestHead {
    /// The values of a field that the parser itself makes nothing of, in order.
    ///
    /// Looks at all lines: for requests that are rare.
    ///
    /// - Parameters:
    ///   - name: The field's, in lower case.
    ///   - bytes: The request's bytes.
    package func values(of name: StaticString, in bytes: Span<UInt8>) -> [ByteRange] {
        var values: [ByteRange] = []
        var start = 0
        while let lineFeed = bytes.firstIndex(of: .lineFeed, in: start..<length) {
            // The request line is one that has no such name before its first colon.
            if let colon = bytes.firstIndex(of: UInt8(ascii: ":"), in: start..<lineFeed),
                bytes.equalsIgnoringCase(ByteRange(start, colon), name)
            {
                // Before each line feed of a head that was read is a carriage return.
                values.append(bytes.trimmed(ByteRange(colon + 1, lineFeed - 1)))
            }
            start = lineFeed + 1
        }
        return values
    }
}
