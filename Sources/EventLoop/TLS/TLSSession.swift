import COpenSSL
import Cryptography
import Glibc
import System

/// The server's side of one TLS connection, over a registered socket that outlives it.
///
/// Belongs to the loop's thread.
@safe final class TLSSession {
    private let handle: OpaquePointer
    // Kept because OpenSSL calls back into them during the handshake.
    private let credentials: TLSCredentials
    /// Whether the handshake may have asked for a certificate, now or once there are authorities.
    private let mayAskClient: Bool
    /// When the first certificate of the client's chain expires, in seconds since 1970; `.max` if the client has shown none.
    private var clientExpiry = Int64.max
    private let loop: EventLoop
    private let id: RegistrationID

    /// Whether OpenSSL holds received bytes that no read has returned yet; the socket's readiness does not show them.
    private(set) var hasPending = false
    /// What the socket must be ready for before reading can continue: usually reading, during a key update writing.
    private(set) var readingNeeds = Epoll.Events.readable
    /// What the socket must be ready for before writing can continue.
    private(set) var writingNeeds = Epoll.Events.writable
    /// Whether the protocol or the socket has failed: nothing more may be sent then (SSL_get_error(3)).
    private var isBroken = false

    /// `errno` of the last call on the socket, 0 if it succeeded.
    private(set) var fault: Int32 = 0
    /// Whether the peer has closed its sending side, with or without close_notify.
    private(set) var hasEnded = false
    /// Bytes received since the beginning or the end of the handshake, less those that application data pays for.
    private var unusedBytes = 0
    /// How many received bytes one byte of application data pays for: enough for a padded record with a single byte.
    private static let bytesForOne = 256
    /// What a message that is not data, such as a key update, counts for: it costs as much time as many kilobytes of data.
    private static let bytesForMessage = 12 << 10
    /// Messages that are not data and have not been counted as steps.
    private var messages = 0
    /// The limit of `unusedBytes`: while no data arrives, OpenSSL reads on, beyond the control of turns and deadlines.
    ///
    /// Until the ClientHello has arrived it is the size of the largest record, many times what clients send.
    private var mostUnusedBytes = 16 << 10

    /// Nil if memory is short.
    init?(
        _ certificates: WatchedCertificates, clients: TLSClientAuthentication, on loop: EventLoop, _ id: RegistrationID
    ) {
        let credentials = certificates.content
        guard let handle = unsafe credentials.makeHandle(clients: clients) else { return nil }
        unsafe self.handle = unsafe handle
        self.credentials = credentials
        mayAskClient = clients != .none
        self.loop = loop
        self.id = id
        guard let transport = unsafe TLSTransport.shared.make(for: self) else { return nil }
        // For both directions, and freed with the session.
        unsafe SSL_set_bio(handle, transport, transport)
        unsafe SSL_set_accept_state(handle)
    }

    deinit {
        unsafe SSL_free(handle)
    }

    /// The negotiated protocol, for example `TLSv1.3`.
    var version: String { unsafe String(cString: SSL_get_version(handle)) }

    /// What the client's certificate says; nil if the client has shown none.
    var clientCertificate: ClientCertificate? {
        guard let certificate = unsafe SSL_get0_peer_certificate(handle),
            unsafe SSL_get_verify_result(handle) == Int(X509_V_OK)
        else { return nil }
        return unsafe ClientCertificate(certificate)
    }

    /// Whether the client would still be let in: the authorities are those in use, and the chain of its certificate is valid.
    func acceptsClient(at unixTime: @autoclosure () -> Int64) -> Bool {
        !mayAskClient || credentials.areAuthoritiesTrusted && (clientExpiry == .max || unixTime() <= clientExpiry)
    }

    private func noteClientExpiry() {
        // There are no resumed sessions with certificates, which would have no chain.
        guard let chain = unsafe SSL_get0_verified_chain(handle) else { return }
        let count = unsafe OPENSSL_sk_num(chain)
        let times = (0..<count).map { unsafe CertificateTime.expiry(OpaquePointer(OPENSSL_sk_value(chain, $0))) }
        clientExpiry = times.min() ?? 0
    }

    // MARK: - Steps

    enum HandshakeResult {
        case done
        /// The handshake continues when the socket is ready for this direction.
        case needs(Epoll.Events)
        case failed(TLSError)
    }

    /// Continues the handshake as far as it goes without waiting.
    func handshake() -> HandshakeResult {
        OpenSSLErrors.clear()
        let result = unsafe SSL_do_handshake(handle)
        // The client's first request may have arrived with the end of its handshake.
        if result == 1 {
            unusedBytes = 0
            // Five key updates and as much as OpenSSL reads ahead.
            mostUnusedBytes = 80 << 10
            unsafe SSL_set_info_callback(handle) { handle, event, _ in
                guard event & SSL_CB_EXIT != 0 else { return }
                unsafe TLSTransport.session(of: SSL_get_rbio(handle))?.noteMessage()
            }
            hasPending = unsafe SSL_has_pending(handle) == 1
            noteClientExpiry()
            return .done
        }
        switch outcome(of: result) {
        case .needs(let direction):
            if !isReadingHello { mostUnusedBytes = 64 << 10 }
            return .needs(direction)
        case .ended: return .failed(.closed)
        case .failed(let code):
            let entries = OpenSSLErrors.drain()
            if hasEnded || code == ECONNRESET || code == EPIPE { return .failed(.closed) }
            guard let first = entries.first else {
                if code == EMSGSIZE { return .failed(.refused(reason: "ClientHello larger than 16 KiB")) }
                return .failed(.system(SystemError(call: "TLS handshake", code: code)))
            }
            return .failed(.refused(reason: first.isFailedVerification ? verificationFault : first.text))
        }
    }

    /// Counts a message of the handshake's kind, read or written after the handshake; TLS 1.2 has none but those of a second one.
    private func noteMessage() {
        messages += 1
        loop.noteLongStep()
        unusedBytes += version == "TLSv1.3" ? Self.bytesForMessage : mostUnusedBytes + 1
        // Otherwise OpenSSL would go on with the messages that it has read already.
        if isExcessive { unsafe SSL_set_shutdown(handle, SSL_get_shutdown(handle) | SSL_RECEIVED_SHUTDOWN) }
    }

    /// How many messages there were beside data since the last call.
    func takeMessages() -> Int {
        defer { messages = 0 }
        return messages
    }

    /// Whether the peer has sent too much beside data.
    private var isExcessive: Bool { unusedBytes > mostUnusedBytes }

    private var state: OSSL_HANDSHAKE_STATE { unsafe SSL_get_state(handle) }

    /// Whether a part of a ClientHello has arrived.
    var isReadingHello: Bool { state == TLS_ST_SR_CLNT_HELLO }

    /// Whether a whole ClientHello has arrived.
    var hasHello: Bool { state != TLS_ST_BEFORE && !isReadingHello }

    private var verificationFault: String {
        let words = unsafe String(cString: X509_verify_cert_error_string(SSL_get_verify_result(handle)))
        return "client certificate: \(words)"
    }

    /// Appends what has arrived, as `TCPStream.receive` does.
    func receive(into buffer: inout [UInt8], room: Int) throws(SystemError) -> ReceiveResult {
        OpenSSLErrors.clear()
        var result: Int32 = 0
        buffer.append(addingCapacity: room) { span in
            result = unsafe span.withUnsafeMutableBufferPointer { bytes, initialized in
                let count = unsafe SSL_read(handle, bytes.baseAddress, Int32(clamping: room))
                initialized = Int(max(0, count))
                return count
            }
        }
        readingNeeds = .readable
        if result > 0 {
            unusedBytes = max(0, unusedBytes - Self.bytesForOne * Int(result))
            // Also true if only a part of a record is there; the next read then returns nothing.
            hasPending = unsafe SSL_has_pending(handle) == 1
            return .received(Int(result))
        }
        hasPending = false
        if isExcessive { throw SystemError(call: "SSL_read", code: EMSGSIZE) }
        switch outcome(of: result) {
        case .needs(let direction):
            readingNeeds = direction
            return .wouldBlock
        case .ended: return .endOfInput
        case .failed(let code):
            ERR_clear_error()
            throw SystemError(call: "SSL_read", code: code)
        }
    }

    /// Sends from the front of the bytes, at most one record, and returns how many were taken; 0 means to wait.
    ///
    /// After 0, the next call must begin with the same bytes: they may be encrypted already (SSL_write(3)).
    func send(_ bytes: Span<UInt8>) throws(SystemError) -> Int {
        // OpenSSL takes an empty write for an error.
        guard !bytes.isEmpty else { return 0 }
        OpenSSLErrors.clear()
        let result = unsafe bytes.withUnsafeBufferPointer { bytes in
            unsafe SSL_write(handle, bytes.baseAddress, Int32(clamping: bytes.count))
        }
        writingNeeds = .writable
        if result > 0 { return Int(result) }
        switch outcome(of: result) {
        case .needs(let direction):
            writingNeeds = direction
            return 0
        case .ended: throw SystemError(call: "SSL_write", code: EPIPE)
        case .failed(let code):
            ERR_clear_error()
            throw SystemError(call: "SSL_write", code: code)
        }
    }

    /// Tells the peer once that nothing more will be sent (RFC 8446, section 6.1), unless the connection has failed.
    ///
    /// If the kernel has no room for these few bytes, they are not sent: waiting for a client that does not read is not worth
    /// it, and the framing of the protocol above shows where the data ends.
    func sendCloseNotify() {
        guard !isBroken, unsafe SSL_get_shutdown(handle) & SSL_SENT_SHUTDOWN == 0 else { return }
        OpenSSLErrors.clear()
        if unsafe SSL_shutdown(handle) < 0 { ERR_clear_error() }
    }

    // MARK: - Outcomes

    private enum Outcome {
        case needs(Epoll.Events)
        case ended
        /// With an `errno`; the reason of OpenSSL's own faults is still in its queue.
        case failed(Int32)
    }

    /// The outcome of a call that did not succeed; to be called right after that call.
    private func outcome(of result: Int32) -> Outcome {
        switch unsafe SSL_get_error(handle, result) {
        case SSL_ERROR_WANT_READ: return .needs(.readable)
        case SSL_ERROR_WANT_WRITE: return .needs(.writable)
        case SSL_ERROR_ZERO_RETURN: return .ended
        case SSL_ERROR_SYSCALL:
            isBroken = true
            return .failed(fault == 0 ? ECONNRESET : fault)
        default:
            isBroken = true
            return .failed(EPROTO)
        }
    }

    // MARK: - The socket, for OpenSSL

    func read(_ bytes: UnsafeMutablePointer<CChar>?, _ room: Int32) -> Int32 {
        let room = min(Int(room), mostUnusedBytes - unusedBytes)
        guard room > 0 else {
            fault = EMSGSIZE
            return -1
        }
        let count = retryingInterrupts { unsafe recv(id.descriptor, bytes, room, 0) }
        fault = count < 0 ? errno : 0
        if count > 0 { unusedBytes += count }
        if count > 0, count < room { loop.markDrained(id) }
        if count == 0 { hasEnded = true }
        if fault == EAGAIN { loop.markBlocked(.readable, of: id) }
        return Int32(count)
    }

    func write(_ bytes: UnsafePointer<CChar>?, _ count: Int32) -> Int32 {
        let sent = retryingInterrupts { unsafe Glibc.send(id.descriptor, bytes, Int(count), Int32(MSG_NOSIGNAL)) }
        fault = sent < 0 ? errno : 0
        if fault == EAGAIN { loop.markBlocked(.writable, of: id) }
        return Int32(sent)
    }
}

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

    fileprivate static func session(of transport: OpaquePointer?) -> TLSSession? {
        guard let data = unsafe BIO_get_data(transport) else { return nil }
        // Unretained: the session frees the BIO, and OpenSSL calls back only within calls of the session.
        return unsafe Unmanaged<TLSSession>.fromOpaque(data).takeUnretainedValue()
    }
}
