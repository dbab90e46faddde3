/// How much a request may hold.
///
/// All sizes are in bytes.
package struct RequestLimits: Sendable {
    /// The request line without its line end; beyond it 414.
    package var requestLine: Int
    /// The whole head; beyond it 431.
    package var head: Int
    /// Header lines; beyond it 431.
    package var fieldCount: Int
    /// The body, after chunking is undone; beyond it 413.
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
