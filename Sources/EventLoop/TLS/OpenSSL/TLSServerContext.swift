internal import COpenSSL
internal import Glibc
internal import System

/// An SSL_CTX for one certificate and its key; freed when the last user has gone.
///
/// Any thread, as it does not change after init.
@safe final class TLSServerContext {
    let handle: OpaquePointer

    /// Mozilla's intermediate list for TLS 1.2 (https://wiki.mozilla.org/Security/Server_Side_TLS) without its DHE suites:
    /// every client that knows them with AEAD knows ECDHE, and they cost the server many times as much.
    private static let ciphers = """
        ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:\
        ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305
        """
    private static let suites = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
    private static let groups = "X25519:prime256v1:secp384r1"
    private static let sessionLifetimeInSeconds = 3_600

    private let path: String
    /// The names for ALPN.
    private let applicationProtocols: [[UInt8]]

    /// - Parameters:
    ///   - pair: The files of the certificate and its key.
    ///   - clientAuthorities: The file of the authorities of which one must have signed a client's certificate.
    ///   - applicationProtocols: As for `TLSContext`.
    init(
        _ pair: TLSFiles.Pair, clientAuthorities: String?, applicationProtocols: [String]
    ) throws(TLSConfigurationError) {
        path = pair.certificateChain
        self.applicationProtocols = applicationProtocols.map { Array($0.utf8) }
        OpenSSLErrors.clear()
        guard let handle = unsafe SSL_CTX_new(TLS_server_method()) else {
            throw Self.error(pair.certificateChain, .unusable)
        }
        unsafe self.handle = unsafe handle
        guard applyRules() else { throw Self.error(pair.certificateChain, .unusable) }
        try load(pair)
        if let clientAuthorities { try trust(clientAuthorities) }
    }

    deinit {
        unsafe SSL_CTX_free(handle)
    }

    /// Sets the rules of every connection, whatever the certificate; false if OpenSSL does not know a name in the lists.
    private func applyRules() -> Bool {
        unsafe SSL_CTX_set_security_level(handle, 2)
        _ = unsafe SSL_CTX_set_options(
            handle,
            COPENSSL_OP_NO_COMPRESSION | COPENSSL_OP_NO_RENEGOTIATION
                // Our order, except ChaCha20 for clients that prefer it: phones without AES instructions.
                | COPENSSL_OP_CIPHER_SERVER_PREFERENCE | COPENSSL_OP_PRIORITIZE_CHACHA
                // Many clients end without close_notify; the framing of the protocol above shows whether a message was cut off.
                | COPENSSL_OP_IGNORE_UNEXPECTED_EOF
        )
        unsafe copenssl_set_mode(
            handle,
            COPENSSL_MODE_ENABLE_PARTIAL_WRITE | COPENSSL_MODE_ACCEPT_MOVING_WRITE_BUFFER
                // An idle connection then keeps no 16 KiB buffers.
                | COPENSSL_MODE_RELEASE_BUFFERS
        )
        // For a claimed length room is made at once, as for a hello.
        unsafe copenssl_set_max_certificates(handle, 16 << 10)
        // Otherwise each record costs two reads, one of them for its five-byte header.
        unsafe copenssl_set_read_ahead(handle)
        // Sessions are kept in the clients' tickets only, one for each handshake: API clients open few connections at once.
        unsafe copenssl_set_tickets(handle, 1, Self.sessionLifetimeInSeconds)
        // Unretained: sessions keep this context, and only their handshakes call back.
        let argument = unsafe Unmanaged.passUnretained(self).toOpaque()
        unsafe SSL_CTX_set_alpn_select_cb(
            handle,
            { _, chosen, length, offered, count, argument in
                guard let argument = unsafe argument else { return SSL_TLSEXT_ERR_NOACK }
                let context = unsafe Unmanaged<TLSServerContext>.fromOpaque(argument).takeUnretainedValue()
                return unsafe context.chooseProtocol(
                    chosen, length, UnsafeBufferPointer(start: offered, count: Int(count)))
            }, argument
        )
        return unsafe copenssl_set_versions(handle, TLS1_2_VERSION, TLS1_3_VERSION) == 1
            && SSL_CTX_set_cipher_list(handle, Self.ciphers) == 1
            && SSL_CTX_set_ciphersuites(handle, Self.suites) == 1
            && copenssl_set_groups(handle, Self.groups) == 1
    }

    /// Chooses our first protocol that a client offers, in a list of names behind their lengths (RFC 7301, section 3.1).
    ///
    /// A client that offers only other protocols gets the alert no_application_protocol.
    private func chooseProtocol(
        _ chosen: UnsafeMutablePointer<UnsafePointer<UInt8>?>?, _ length: UnsafeMutablePointer<UInt8>?,
        _ offered: UnsafeBufferPointer<UInt8>
    ) -> Int32 {
        for name in applicationProtocols {
            var start = 0
            while start < offered.count {
                let end = unsafe min(start + 1 + Int(offered[start]), offered.count)
                if unsafe offered[(start + 1)..<end].elementsEqual(name) {
                    // It has to point into the offer or to a constant (SSL_CTX_set_alpn_select_cb(3)).
                    unsafe chosen?.pointee = unsafe offered.baseAddress?.advanced(by: start + 1)
                    unsafe length?.pointee = UInt8(name.count)
                    return SSL_TLSEXT_ERR_OK
                }
                start = end
            }
        }
        return SSL_TLSEXT_ERR_ALERT_FATAL
    }

    // MARK: - Files

    private func load(_ pair: TLSFiles.Pair) throws(TLSConfigurationError) {
        try Self.checkReadable(pair.certificateChain)
        guard unsafe SSL_CTX_use_certificate_chain_file(handle, pair.certificateChain) == 1 else {
            throw Self.error(pair.certificateChain, .noCertificate)
        }
        try Self.checkReadable(pair.privateKey)
        var wantsPassphrase = false
        let isLoaded = unsafe withUnsafeMutablePointer(to: &wantsPassphrase) { flag in
            // OpenSSL would otherwise ask on the terminal and wait.
            unsafe SSL_CTX_set_default_passwd_cb(handle) { _, _, _, flag in
                unsafe flag?.assumingMemoryBound(to: Bool.self).pointee = true
                return -1
            }
            unsafe SSL_CTX_set_default_passwd_cb_userdata(handle, flag)
            defer { unsafe SSL_CTX_set_default_passwd_cb_userdata(handle, nil) }
            return unsafe SSL_CTX_use_PrivateKey_file(handle, pair.privateKey, SSL_FILETYPE_PEM) == 1
                && SSL_CTX_check_private_key(handle) == 1
        }
        guard isLoaded else {
            throw Self.error(
                pair.privateKey, wantsPassphrase ? .encryptedPrivateKey : .noPrivateKey,
                mismatch: .keyMismatch(certificate: pair.certificateChain)
            )
        }
    }

    /// Trusts the authorities of a file to issue clients' certificates, which each session may ask for.
    private func trust(_ file: String) throws(TLSConfigurationError) {
        try Self.checkReadable(file)
        guard unsafe SSL_CTX_load_verify_file(handle, file) == 1, let names = unsafe SSL_load_client_CA_file(file)
        else {
            throw Self.error(file, .noClientAuthority)
        }
        unsafe SSL_CTX_set_client_CA_list(handle, names)
    }

    /// Checks first, as the system's reason is clearer than OpenSSL's.
    private static func checkReadable(_ path: String) throws(TLSConfigurationError) {
        let number = retryingInterrupts { unsafe open(path, O_RDONLY | O_CLOEXEC) }
        guard number >= 0 else {
            let error = SystemError.last("open")
            throw TLSConfigurationError(file: path, problem: .unreadable(error), reason: "")
        }
        _ = FileDescriptor(owning: number)
    }

    private static func error(
        _ file: String, _ problem: TLSConfigurationError.Problem, mismatch: TLSConfigurationError.Problem? = nil
    ) -> TLSConfigurationError {
        let entries = OpenSSLErrors.drain()
        if let mismatch, let entry = entries.first(where: \.isKeyMismatch) {
            return TLSConfigurationError(file: file, problem: mismatch, reason: entry.text)
        }
        return TLSConfigurationError(file: file, problem: problem, reason: entries.first?.text ?? "")
    }

    // MARK: - The certificate

    /// The server's own certificate.
    var certificate: TLSCertificate {
        guard let certificate = unsafe SSL_CTX_get0_certificate(handle) else {
            return TLSCertificate(path: path, start: 0, expiry: 0, names: [])
        }
        return unsafe TLSCertificate(
            path: path, start: Self.unixTime(X509_get0_notBefore(certificate)),
            expiry: Self.unixTime(X509_get0_notAfter(certificate)), names: certificateNames
        )
    }

    private static func unixTime(_ value: UnsafePointer<ASN1_TIME>?) -> Int64 {
        var time = unsafe tm()
        guard unsafe ASN1_TIME_to_tm(value, &time) == 1 else { return 0 }
        return unsafe Int64(timegm(&time))
    }

    /// The DNS names among the certificate's subject alternative names; its common name is ignored (RFC 9525).
    private var certificateNames: [String] {
        guard let certificate = unsafe SSL_CTX_get0_certificate(handle) else { return [] }
        // A NUL in a name is part of it; the name then matches nothing.
        let names = unsafe CertificateNames.alternative(certificate, kind: GEN_DNS)
        return names.map { String(decoding: $0, as: UTF8.self) }
    }
}
