/// How a request's body is delimited (RFC 9112, section 6).
package enum BodyFraming: Hashable, Sendable {
    case none
    /// `Content-Length`, more than 0.
    case length(Int)
    case chunked
}

/// The head of a request: the ranges of its parts, counted from the request's first byte, and how it is framed.
package struct RequestHead: Sendable {
    package internal(set) var method = Method.other
    package internal(set) var methodName = ByteRange.empty
    /// The target as sent.
    package internal(set) var target = ByteRange.empty
    /// From the first `/` to the `?`; `*` for `OPTIONS *`; empty for an absolute target without a path.
    package internal(set) var path = ByteRange.empty
    /// What follows the first `?`; empty if there is none.
    package internal(set) var query = ByteRange.empty
    /// Host and port: of an absolute target, otherwise of the Host header.
    ///
    /// Valid, perhaps empty.
    package internal(set) var authority = ByteRange.empty
    /// 0 or 1; later minor versions are read as 1 (RFC 9110, section 6.2).
    package internal(set) var minorVersion: UInt8 = 1
    package internal(set) var fields = HeaderFields()
    package internal(set) var framing = BodyFraming.none
    /// `Expect: 100-continue` in HTTP/1.1.
    var expectsContinue = false
    /// Whether the connection stays open after the answer (RFC 9112, section 9.3).
    package internal(set) var keepsAlive = true
    /// The bytes of the head with the empty line that ends it.
    package internal(set) var length = 0

    package init() {}
}

/// A whole request: its head, and its body with any chunking undone.
package struct Request: Sendable {
    package let head: RequestHead
    package let body: ByteRange

    package init(head: RequestHead, body: ByteRange) {
        self.head = head
        self.body = body
    }
}
