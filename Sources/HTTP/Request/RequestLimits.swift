/// How large the parts of a request may be.
///
/// All sizes are in bytes.
package struct RequestLimits: Sendable {
    /// The request line without its line end; beyond it the answer is 414.
    package var requestLine: Int
    /// The whole head; beyond it the answer is 431.
    package var head: Int
    /// How many header lines; beyond it the answer is 431.
    package var fieldCount: Int
    /// The body after decoding of chunks; beyond it the answer is 413.
    package var body: Int

    package init(
        requestLine: Int = 8 << 10, head: Int = 16 << 10, fieldCount: Int = 100, body: Int = 1 << 20
    ) {
        self.requestLine = requestLine
        self.head = head
        self.fieldCount = fieldCount
        self.body = body
    }
}
