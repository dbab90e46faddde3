internal import COpenSSL
internal import Glibc

/// The certificates and keys of one reading of a listener's files, which never change afterwards.
///
/// Any thread.
final class TLSCredentials: @unchecked Sendable {
    // Unchecked: nothing changes after init, and OpenSSL counts references to its contexts atomically.

    private let contexts: [TLSServerContext]
    private let hasClientAuthorities: Bool
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
        hasClientAuthorities = files.clientAuthorities != nil
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
    ///
    /// - Parameter clients: Whether the client shows a certificate.
    func makeHandle(clients: TLSClientAuthentication) -> OpaquePointer? {
        guard let handle = unsafe SSL_new(contexts[0].handle) else { return nil }
        let (mode, name): (Int32, StaticString) =
            switch clients {
            case .none: (SSL_VERIFY_NONE, "none")
            case .optional: (SSL_VERIFY_PEER, "optional")
            case .requiredByAuthorities where !hasClientAuthorities: (SSL_VERIFY_NONE, "none")
            case .required, .requiredByAuthorities: (SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, "required")
            }
        unsafe SSL_set_verify(handle, mode, nil)
        // A session is resumed only where the same was asked of its client: otherwise one that was begun without a
        // certificate could be resumed where one is required (SSL_set_session_id_context(3)).
        guard unsafe SSL_set_session_id_context(handle, name.utf8Start, UInt32(name.utf8CodeUnitCount)) == 1 else {
            unsafe SSL_free(handle)
            return nil
        }
        return unsafe handle
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
