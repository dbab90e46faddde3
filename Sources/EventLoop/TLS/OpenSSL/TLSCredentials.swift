internal import COpenSSL
internal import Glibc

/// The certificates and keys of one reading of a listener's files, which never change afterwards.
///
/// Any thread.
final class TLSCredentials: @unchecked Sendable {
    // Unchecked: nothing changes after init, and OpenSSL counts references to its contexts atomically.

    private let contexts: [TLSServerContext]
    private var names = TLSServerNames()
    /// In the order of the files.
    let certificates: [TLSCertificate]

    init(_ files: TLSFiles, _ applicationProtocols: [String]) throws(TLSConfigurationError) {
        var contexts: [TLSServerContext] = []
        for (index, pair) in files.pairs.enumerated() {
            let context = try TLSServerContext(
                pair, clientAuthorities: files.clientAuthorities, applicationProtocols: applicationProtocols)
            for name in context.certificate.names { names.add(name, at: index) }
            contexts.append(context)
        }
        self.contexts = contexts
        certificates = contexts.map(\.certificate)
        // One certificate leaves no choice.
        if contexts.count > 1 { chooseByName() }
    }

    /// OpenSSL's version, for example `3.0.22`.
    static var libraryVersion: String { unsafe String(cString: OpenSSL_version(OPENSSL_VERSION_STRING)) }

    /// Reads a certificate and its key without using them.
    static func examine(
        _ pair: TLSFiles.Pair, clientAuthorities: String?
    ) throws(TLSConfigurationError) -> TLSCertificate {
        try TLSServerContext(pair, clientAuthorities: clientAuthorities, applicationProtocols: []).certificate
    }

    /// A new SSL object for the server's side of a connection; nil if memory is short.
    ///
    /// The caller owns it, and keeps `self` during the handshake.
    func makeHandle() -> OpaquePointer? {
        unsafe SSL_new(contexts[0].handle)
    }

    private func chooseByName() {
        // Unretained: sessions keep these credentials, and only their handshakes call back.
        let argument = unsafe Unmanaged.passUnretained(self).toOpaque()
        unsafe copenssl_set_server_name_callback(
            contexts[0].handle,
            { session, _, argument in
                guard let argument = unsafe argument else { return SSL_TLSEXT_ERR_NOACK }
                let credentials = unsafe Unmanaged<TLSCredentials>.fromOpaque(argument).takeUnretainedValue()
                return unsafe credentials.choose(for: session)
            },
            argument
        )
    }

    /// Gives a session the certificate for the name that its client asks for (RFC 6066, section 3).
    ///
    /// An unknown name gets the first certificate rather than an alert: clients without names and probes by address work.
    private func choose(for session: OpaquePointer?) -> Int32 {
        guard let asked = unsafe SSL_get_servername(session, TLSEXT_NAMETYPE_host_name),
            let index = names.index(for: unsafe String(cString: asked))
        else { return SSL_TLSEXT_ERR_NOACK }
        // Tickets stay with the first context's key, so that they work for every name.
        _ = unsafe SSL_set_SSL_CTX(session, contexts[index].handle)
        return SSL_TLSEXT_ERR_OK
    }
}
