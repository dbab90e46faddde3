internal import HTTP
internal import TokenStore

/// A request for the contract in a mode with users: what is kept of it once its bytes may be dropped.
struct AuthorizedRequest {
    /// Whether it is a POST; otherwise it is a GET.
    let isWrite: Bool
    /// With its tags removed; empty if it is missing.
    let uniqueID: [UInt8]
    let tokenInfo: [UInt8]?
    /// Nil if they are malformed.
    let preconditions: Preconditions?
    let requestID: RequestID
    /// The client's; nil for a Unix socket.
    let address: IPAddress?

    /// Bytes of memory that it takes while it waits.
    var waitingBytes: Int { Token.waitingBytes(id: uniqueID, info: tokenInfo ?? []) }
}
