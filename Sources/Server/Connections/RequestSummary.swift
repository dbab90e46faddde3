internal import HTTP

/// What a request's head says of how it is to be answered and counted.
///
/// A few bytes that outlive the carrying out of the request, where its head is ten times as large.
struct RequestSummary {
    let method: Method
    /// Whether the connection stays open after the answer.
    let keepsAlive: Bool
    /// The client speaks HTTP/1.0.
    let isOldVersion: Bool

    init(_ head: RequestHead) {
        method = head.method
        keepsAlive = head.keepsAlive
        isOldVersion = head.minorVersion == 0
    }

    /// The answer has no body.
    var omitsBody: Bool {
        if case .head = method { true } else { false }
    }
}
