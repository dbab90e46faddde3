package import System

/// Why a connection did not get as far as TLS.
package enum TLSError: Error, Hashable, CustomStringConvertible {
    /// The client sent text, in all likelihood a plain HTTP request; none of it has been read and it can be answered so.
    case plainRequest
    /// The client went away before the handshake was over.
    case closed
    /// The handshake was not over by its deadline.
    case timedOut
    /// The loop takes on no new work.
    case stopped
    /// One side did not accept what the other offered; OpenSSL's short reason, for example `no shared cipher`.
    case refused(reason: String)
    /// The socket failed.
    case system(SystemError)

    package var description: String {
        switch self {
        case .plainRequest: "plain text on a TLS port"
        case .closed: "closed by the client during the TLS handshake"
        case .timedOut: "TLS handshake timed out"
        case .stopped: "TLS handshake given up, the server is stopping"
        case .refused(let reason): "TLS handshake failed: \(reason)"
        case .system(let error): "TLS handshake failed: \(error)"
        }
    }
}
