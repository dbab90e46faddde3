internal import COpenSSL
internal import Glibc

/// The socket as OpenSSL sees it: a BIO of ours (BIO_meth_new(3)).
///
/// OpenSSL's own BIO for sockets lacks two things: `MSG_NOSIGNAL`, and telling the loop that a short read has emptied the
/// socket, which saves each request another read that would find nothing.
@safe struct TLSTransport: @unchecked Sendable {
    // Unchecked: the method table is filled here and only read afterwards.
    private let methods: OpaquePointer

    static let shared = TLSTransport()

    private init() {
        guard let methods = unsafe BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "event loop") else {
            preconditionFailure("OpenSSL has neither memory nor an index for a kind of BIO")
        }
        _ = unsafe BIO_meth_set_read(methods) { transport, bytes, count in
            unsafe copenssl_clear_retry(transport)
            guard let session = unsafe TLSTransport.session(of: transport) else { return -1 }
            let result = unsafe session.read(bytes, count)
            if result < 0, session.fault == EAGAIN { unsafe copenssl_retry_read(transport) }
            return result
        }
        _ = unsafe BIO_meth_set_write(methods) { transport, bytes, count in
            unsafe copenssl_clear_retry(transport)
            guard let session = unsafe TLSTransport.session(of: transport) else { return -1 }
            let result = unsafe session.write(bytes, count)
            if result < 0, session.fault == EAGAIN { unsafe copenssl_retry_write(transport) }
            return result
        }
        _ = unsafe BIO_meth_set_ctrl(methods) { transport, command, _, _ in
            switch command {
            // Nothing is buffered here.
            case BIO_CTRL_FLUSH: 1
            // Distinguishes a peer that has closed from an error.
            case BIO_CTRL_EOF: unsafe TLSTransport.session(of: transport)?.hasEnded == true ? 1 : 0
            default: 0
            }
        }
        unsafe self.methods = unsafe methods
    }

    /// A BIO for a session, which must outlive it; nil if memory is short.
    func make(for session: TLSSession) -> OpaquePointer? {
        guard let transport = unsafe BIO_new(methods) else { return nil }
        unsafe BIO_set_data(transport, Unmanaged.passUnretained(session).toOpaque())
        unsafe BIO_set_init(transport, 1)
        return unsafe transport
    }

    private static func session(of transport: OpaquePointer?) -> TLSSession? {
        guard let data = unsafe BIO_get_data(transport) else { return nil }
        // Unretained: the session frees the BIO, and OpenSSL calls back only within calls of the session.
        return unsafe Unmanaged<TLSSession>.fromOpaque(data).takeUnretainedValue()
    }
}
