import COpenSSL
import Cryptography
import Glibc
import System

/// An SSL_CTX for one certificate and its key, or for several of the same names; freed when the last user has gone.
///
/// Any thread, as it does not change after init.
@safe final class TLSServerContext {
    let handle: OpaquePointer
    /// The pair's, as they are sent.
    let certificates: PEMCertificates

    /// Mozilla's intermediate list for TLS 1.2 (https://wiki.mozilla.org/Security/Server_Side_TLS) without its DHE suites:
    /// every client that knows them with AEAD knows ECDHE, and they cost the server many times as much.
    private static let ciphers = """
        ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:\
        ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305
        """
    private static let suites = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
    /// Not secp384r1: with OpenSSL 3.0 it costs ten times as much as prime256v1, and any client can ask for it.
    private static let groups = "X25519:prime256v1"
    /// Begins with a group that also resists quantum computers; OpenSSL has it since 3.5, and by then is fast at secp384r1.
    private static let hybridGroups = "X25519MLKEM768:" + groups + ":secp384r1"
    private static let sessionLifetimeInSeconds = 3_600

    /// The protocols that are spoken over TLS, each behind its length (ALPN; RFC 7301, section 3.1).
    private static let applicationProtocols: StaticString = "\u{8}http/1.1"

    /// - Parameters:
    ///   - pair: The files of the certificate and its key.
    ///   - authorities: One of them must have issued a client's certificate; nil if no client shows one.
    init(_ pair: TLSFiles.Pair, _ authorities: TLSAuthorities?) throws(KeyFileError) {
        certificates = try PEMCertificates(file: pair.certificateChain, ifEmpty: Self.noCertificate)
        certificates.sortByIssuer()
        OpenSSLErrors.clear()
        guard let handle = unsafe SSL_CTX_new(TLS_server_method()) else {
            throw .fromOpenSSL(pair.certificateChain, "cannot be used")
        }
        unsafe self.handle = unsafe handle
        guard applyRules() else { throw .fromOpenSSL(pair.certificateChain, "cannot be used") }
        // OpenSSL before 3.5 does not know the hybrid group, which leaves an error.
        OpenSSLErrors.clear()
        try load(pair, certificates)
        // Each session decides whether it asks for a certificate.
        if let authorities { unsafe authorities.trust(in: handle) }
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
        // OpenSSL allocates the length that a message claims at once, as for a hello.
        unsafe copenssl_set_max_certificates(handle, 16 << 10)
        // Otherwise each record costs two reads, one of them for its five-byte header.
        unsafe copenssl_set_read_ahead(handle)
        // Sessions are kept in the clients' tickets only, one for each handshake: API clients open few connections at once.
        unsafe copenssl_set_tickets(handle, 1, Self.sessionLifetimeInSeconds)
        unsafe SSL_CTX_set_alpn_select_cb(
            handle,
            { _, chosen, length, offered, count, _ in
                let names = TLSServerContext.applicationProtocols
                var found: UnsafeMutablePointer<UInt8>?
                let result = unsafe SSL_select_next_proto(
                    &found, length, names.utf8Start, UInt32(names.utf8CodeUnitCount), offered, count)
                // A client that offers only other protocols gets the alert no_application_protocol.
                guard result == OPENSSL_NPN_NEGOTIATED else { return SSL_TLSEXT_ERR_ALERT_FATAL }
                unsafe chosen?.pointee = UnsafePointer(found)
                return SSL_TLSEXT_ERR_OK
            }, nil
        )
        return unsafe copenssl_set_versions(handle, TLS1_2_VERSION, TLS1_3_VERSION) == 1
            && SSL_CTX_set_cipher_list(handle, Self.ciphers) == 1
            && SSL_CTX_set_ciphersuites(handle, Self.suites) == 1
            && (copenssl_set_groups(handle, Self.hybridGroups) == 1 || copenssl_set_groups(handle, Self.groups) == 1)
    }

    /// Whether the certificate is for a name (RFC 9525), by itself if `isExact`, otherwise by a wildcard.
    ///
    /// Its common name is ignored. A wildcard stands for exactly one label, the leftmost.
    func isFor(_ name: String, isExact: Bool) -> Bool {
        defer { OpenSSLErrors.clear() }
        // OpenSSL's own wildcards match neither *.internal nor a label with an underscore.
        let entry = isExact ? name : "*" + name.drop { $0 != "." }
        let flags = UInt32(X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_WILDCARDS)
        return unsafe X509_check_host(SSL_CTX_get0_certificate(handle), entry, 0, flags, nil) == 1
    }

    // MARK: - Files

    /// Adds a certificate and its key, unless there already is one with a key of the same kind: for each client, OpenSSL
    /// chooses one that the client can check.
    ///
    /// - Parameters:
    ///   - pair: The files.
    ///   - certificates: What the file of certificates holds.
    func load(_ pair: TLSFiles.Pair, _ certificates: PEMCertificates) throws(KeyFileError) {
        // OpenSSL counts its own references to them.
        defer { withExtendedLifetime(certificates) {} }
        guard let chain = unsafe OPENSSL_sk_new_null() else {
            throw .fromOpenSSL(pair.certificateChain, "cannot be used")
        }
        defer { unsafe OPENSSL_sk_free(chain) }
        for index in certificates.indices.dropFirst() {
            _ = unsafe OPENSSL_sk_push(chain, UnsafeRawPointer(certificates.all[index]))
        }
        let certificate = unsafe certificates.all[0]
        let key = try unsafe Self.privateKey(pair.privateKey)
        defer { unsafe EVP_PKEY_free(key) }
        guard unsafe X509_check_private_key(certificate, key) == 1 else {
            throw .fromOpenSSL(
                pair.privateKey,
                "does not belong to the first certificate in \(pair.certificateChain); put the pair in place together")
        }
        guard unsafe SSL_CTX_use_cert_and_key(handle, certificate, key, chain, 0) != 1 else { return }
        let refusal = OpenSSLErrors.drain().first
        guard refusal?.isOfSameKind == true else {
            throw .fromOpenSSL(pair.certificateChain, Self.noCertificate, refusal)
        }
    }

    private static let noCertificate = """
        holds no usable certificate; give a PEM file with the server's certificate first and the intermediate ones \
        after it
        """
    private static let noKey = "holds no usable private key; give an unencrypted PEM file"
    private static let encryptedKey = """
        is encrypted with a passphrase, which cannot be entered here; store it with "openssl pkey -in FILE -out NEW" \
        and let only the server's user read it
        """

    private static func privateKey(_ path: String) throws(KeyFileError) -> OpaquePointer {
        let text = try PEMText(file: path)
        var wantsPassphrase = false
        let key = unsafe withUnsafeMutablePointer(to: &wantsPassphrase) { flag in
            // OpenSSL would otherwise ask on the terminal and wait.
            unsafe PEM_read_bio_PrivateKey(
                text.source, nil,
                { _, _, _, flag in
                    unsafe flag?.assumingMemoryBound(to: Bool.self).pointee = true
                    return -1
                }, flag)
        }
        guard let key = unsafe key else { throw .fromOpenSSL(path, wantsPassphrase ? encryptedKey : noKey) }
        return unsafe key
    }

    /// What the pair's certificates say.
    ///
    /// - Parameter path: The file that they were read from.
    func certificate(from path: String) -> TLSCertificate {
        let all = unsafe certificates.all
        let first = certificates.indices.min { certificates.expiry($0) < certificates.expiry($1) } ?? 0
        let text = { (name: [UInt8]) in String(decoding: name, as: UTF8.self) }
        // The server's own common name is ignored (RFC 9525). A NUL in a name is part of it; the name then matches nothing.
        return unsafe TLSCertificate(
            path: path, start: all.map(CertificateTime.start).max() ?? 0, expiry: certificates.expiry(first),
            issuer: first == 0 ? nil : text(CertificateNames.common(all[first]).compactMap(\.self).first ?? []),
            names: CertificateNames.alternative(all[0], kind: GEN_DNS).map(text)
        )
    }
}

/// When certificates are valid, in seconds since 1970; 0 for a time that cannot be read.
enum CertificateTime {
    static func start(_ certificate: OpaquePointer) -> Int64 { unsafe unixTime(X509_get0_notBefore(certificate)) }

    static func expiry(_ certificate: OpaquePointer) -> Int64 { unsafe unixTime(X509_get0_notAfter(certificate)) }

    private static func unixTime(_ value: UnsafePointer<ASN1_TIME>?) -> Int64 {
        var time = unsafe tm()
        guard unsafe ASN1_TIME_to_tm(value, &time) == 1 else { return 0 }
        return unsafe Int64(timegm(&time))
    }
}

/// The certificates by which clients' certificates are verified, as one reading of their file has found them.
///
/// Each is trusted by itself: an intermediate authority without its root too.
///
/// Any thread, as it does not change after init.
final class TLSAuthorities {
    private let certificates: PEMCertificates
    /// What the file holds.
    let summary: TLSClientAuthorities
    /// Equal for equal certificates, and different for others.
    let number: Int

    init(file path: String) throws(KeyFileError) {
        certificates = try PEMCertificates(
            file: path,
            ifEmpty: """
                holds no usable certificate authorities for client certificates; give a PEM file with at least one
                """)
        var (digests, expiries) = (Hasher(), [Int64]())
        for index in certificates.indices {
            var digest = [UInt8](repeating: 0, count: 32)
            _ = unsafe X509_digest(certificates.all[index], EVP_sha256(), &digest, nil)
            digests.combine(digest)
            // OpenSSL's security level 2.
            let isStrong = unsafe EVP_PKEY_get_security_bits(X509_get0_pubkey(certificates.all[index])) >= 112
            expiries.append(isStrong ? certificates.expiry(index) : 0)
        }
        summary = TLSClientAuthorities(path: path, expiries: expiries)
        number = digests.finalize()
    }

    /// Makes the sessions of an SSL_CTX verify clients' certificates.
    ///
    /// Clients are not told the authorities' names, which is optional (RFC 8446, section 4.2.4; RFC 5246, section 7.4.4): some
    /// fail if there are a hundred.
    func trust(in context: OpaquePointer) {
        let store = unsafe SSL_CTX_get_cert_store(context)
        _ = unsafe X509_STORE_set_flags(store, UInt(X509_V_FLAG_PARTIAL_CHAIN))
        for index in certificates.indices {
            _ = unsafe X509_STORE_add_cert(store, certificates.all[index])
        }
    }
}

/// What the file of the authorities for clients' certificates holds.
package struct TLSClientAuthorities: Hashable, Sendable {
    /// The file's path, as configured.
    package let path: String
    /// When each of them expires, in seconds since 1970; 0 for a key that is too weak for OpenSSL to trust.
    package let expiries: [Int64]
}

/// Whether the clients of a listener show certificates in the handshake.
package enum TLSClientAuthentication: Sendable {
    case none
    /// Clients without a certificate are let in; a certificate that is not valid ends the handshake.
    case optional
    case required
    /// `required` while the files of the context name authorities, otherwise `none`.
    case requiredByAuthorities
}
