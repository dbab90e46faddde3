package import System

/// Why a handshake failed.
package enum TLSError: Error, Hashable, CustomStringConvertible {
    /// The client sent text, most likely a plain HTTP request. None of it was read, and it can be answered in clear.
    case plainRequest
    /// The client disconnected during the handshake.
    case closed
    /// The handshake did not finish by its deadline.
    case timedOut
    /// Newer handshakes needed the memory that it held.
    case displaced
    /// The loop is draining.
    case stopped
    /// One side did not accept what the other offered; the library's short reason, for example `no shared cipher`.
    case refused(reason: String)
    /// The socket failed.
    case system(SystemError)

    package var description: String {
        switch self {
        case .plainRequest: "plain text on a TLS port"
        case .closed: "closed by the client during the TLS handshake"
        case .timedOut: "TLS handshake timed out"
        case .displaced: "TLS handshake given up for newer ones, which needed its part of limits.buffers"
        case .stopped: "TLS handshake given up, the server is stopping"
        case .refused(let reason): "TLS handshake failed: \(reason)"
        case .system(let error): "TLS handshake failed: \(error)"
        }
    }
}
