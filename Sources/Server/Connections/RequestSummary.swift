internal import HTTP

/// The parts of a request's head that are needed to answer and count the request.
///
/// A few bytes, so that the request's head, which is ten times as large, need not be kept until the answer comes.
struct RequestSummary {
    let method: Method
    /// Whether the connection stays open after the answer.
    let keepsAlive: Bool
    /// Whether the client speaks HTTP/1.0.
    let isOldVersion: Bool

    init(_ head: RequestHead) {
        method = head.method
        keepsAlive = head.keepsAlive
        isOldVersion = head.minorVersion == 0
    }

    /// Whether the answer has no body.
    var omitsBody: Bool {
        if case .head = method { true } else { false }
    }
}
