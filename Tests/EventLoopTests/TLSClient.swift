import COpenSSL
import Foundation
import Synchronization

@testable import EventLoop

/// A client of OpenSSL's own, which blocks the thread that it is used on.
///
/// One thread at a time.
final class TLSClient: @unchecked Sendable {
    struct Options: Sendable {
        var minimum = TLS1_2_VERSION
        var maximum = TLS1_3_VERSION
        var serverName: String?
        var protocols: [String] = []
        var identity: Certificates.Pair?
        var ciphers = "ALL:@SECLEVEL=0"
    }

    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    private let context: OpaquePointer
    private let handle: OpaquePointer
    private let descriptor: Int32

    init(_ descriptor: Int32, _ options: Options = Options(), resuming session: Session? = nil) throws {
        self.descriptor = descriptor
        // OpenSSL's own sockets know nothing of MSG_NOSIGNAL.
        _ = signal(SIGPIPE, SIG_IGN)
        _ = fcntl(descriptor, F_SETFL, 0)
        context = SSL_CTX_new(TLS_client_method())
        handle = {
            // The tests are about the server: the client takes whatever it offers.
            _ = copenssl_set_versions($0, options.minimum, options.maximum)
            _ = SSL_CTX_set_cipher_list($0, options.ciphers)
            if let identity = options.identity {
                _ = SSL_CTX_use_certificate_chain_file($0, identity.certificate)
                _ = SSL_CTX_use_PrivateKey_file($0, identity.key, SSL_FILETYPE_PEM)
            }
            if !options.protocols.isEmpty {
                let list = options.protocols.flatMap { [UInt8($0.utf8.count)] + Array($0.utf8) }
                _ = SSL_CTX_set_alpn_protos($0, list, UInt32(list.count))
            }
            return SSL_new($0)
        }(context)
        if let name = options.serverName { _ = copenssl_set_server_name(handle, name) }
        if let session { _ = SSL_set_session(handle, session.handle) }
        SSL_set_fd(handle, descriptor)
    }

    deinit {
        // A session that was not ended cannot be resumed (SSL_SESSION_is_resumable(3)).
        _ = SSL_shutdown(handle)
        ERR_clear_error()
        SSL_free(handle)
        SSL_CTX_free(context)
        close(descriptor)
    }

    func connect() throws {
        try check(SSL_connect(handle))
    }

    func send(_ bytes: [UInt8]) throws {
        try check(SSL_write(handle, bytes, Int32(bytes.count)))
    }

    func send(_ text: String) throws {
        try send(Array(text.utf8))
    }

    /// What arrived, empty at the end of the input.
    func receive(_ limit: Int = 1 << 16) throws -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: limit)
        let count = SSL_read(handle, &bytes, Int32(limit))
        if count <= 0, SSL_get_error(handle, count) == SSL_ERROR_ZERO_RETURN { return [] }
        try check(count)
        return Array(bytes.prefix(Int(count)))
    }

    func receiveText() throws -> String {
        String(decoding: try receive(), as: UTF8.self)
    }

    /// Asks the server for new keys with the next write (RFC 8446, section 4.6.3).
    func requestKeyUpdate() throws {
        try check(SSL_key_update(handle, SSL_KEY_UPDATE_REQUESTED))
    }

    /// Sends with another key from now on, and tells the server.
    func updateKey() throws {
        try check(SSL_key_update(handle, SSL_KEY_UPDATE_NOT_REQUESTED))
        try check(SSL_do_handshake(handle))
    }

    /// Tries a second handshake in the connection (TLS 1.2).
    func renegotiates() -> Bool {
        defer { ERR_clear_error() }
        return SSL_renegotiate(handle) == 1 && SSL_do_handshake(handle) == 1
    }

    var version: String { String(cString: SSL_get_version(handle)) }
    var cipher: String { String(cString: SSL_CIPHER_get_name(SSL_get_current_cipher(handle))) }
    var isResumed: Bool { SSL_session_reused(handle) == 1 }
    /// What a further connection can be resumed with; with TLS 1.3 there after the first read.
    var session: Session { Session(handle: SSL_get1_session(handle)) }

    var chosenProtocol: String? {
        var bytes: UnsafePointer<UInt8>?
        var count: UInt32 = 0
        SSL_get0_alpn_selected(handle, &bytes, &count)
        return count == 0 ? nil : String(decoding: UnsafeBufferPointer(start: bytes, count: Int(count)), as: UTF8.self)
    }

    /// The common name of the server's certificate.
    var serverCommonName: String {
        let certificate = SSL_get1_peer_certificate(handle)
        defer { X509_free(certificate) }
        var text = [CChar](repeating: 0, count: 256)
        X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, &text, 256)
        return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    private func check(_ result: Int32) throws {
        guard result <= 0 else { return }
        let error = SSL_get_error(handle, result)
        let reasons = OpenSSLErrors.drain().map(\.text)
        throw Failure(description: reasons.isEmpty ? "error \(error), errno \(errno)" : reasons.joined(separator: ", "))
    }

    final class Session: @unchecked Sendable {
        fileprivate let handle: OpaquePointer

        fileprivate init(handle: OpaquePointer) {
            self.handle = handle
        }

        deinit {
            SSL_SESSION_free(handle)
        }
    }
}

/// Runs something that blocks on a thread of its own.
func blocking<Result: Sendable>(_ body: @escaping @Sendable () throws -> Result) async throws -> Result {
    try await withCheckedThrowingContinuation { continuation in
        Thread { continuation.resume(with: Swift.Result { try body() }) }.start()
    }
}
