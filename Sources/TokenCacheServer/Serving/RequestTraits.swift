internal import HTTP

/// What a request's head asks of the answer: all of it that is needed once the request has been carried out.
struct RequestTraits {
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
    var isHead: Bool {
        if case .head = method { true } else { false }
    }
}
