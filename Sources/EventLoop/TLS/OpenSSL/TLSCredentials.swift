internal import COpenSSL
internal import Glibc

/// The certificates and keys of one reading of a listener's files, which never change afterwards.
///
/// Any thread.
final class TLSCredentials: @unchecked Sendable {
    // Unchecked: nothing changes after init, and OpenSSL counts references to its contexts atomically.

    private var contexts: [TLSServerContext] = []
    private var names = TLSServerNames()
    private let authorities: TLSAuthorities?
    /// In the order of the files.
    private(set) var certificates: [TLSCertificate] = []

    init(_ files: TLSFiles, _ applicationProtocols: [String]) throws(TLSConfigurationError) {
        authorities = try files.clientAuthorities.map { (path) throws(TLSConfigurationError) in
            try TLSAuthorities(file: path)
        }
        var places: [Set<String>: Int] = [:]
        for pair in files.pairs {
            let context = try TLSServerContext(pair, authorities, applicationProtocols: applicationProtocols)
            let certificate = context.certificate(from: pair.certificateChain)
            certificates.append(certificate)
            let place = Set(certificate.names.map { $0.lowercased() })
            if let index = places[place], !place.isEmpty {
                // RSA beside ECDSA, for clients that cannot check the other.
                try contexts[index].load(pair)
                continue
            }
            places[place] = contexts.count
            for name in certificate.names { names.add(name, at: contexts.count) }
            contexts.append(context)
        }
        // One certificate leaves no choice.
        if contexts.count > 1 { chooseByName() }
    }

    /// The authorities for clients' certificates; nil if no client shows one.
    var clientAuthorities: TLSClientAuthorities? { authorities?.summary }

    /// Equal for equal authorities; 0 if there are none.
    var authoritiesNumber: Int { authorities?.number ?? 0 }

    /// OpenSSL's version, for example `3.0.22`.
    static var libraryVersion: String { unsafe String(cString: OpenSSL_version(OPENSSL_VERSION_STRING)) }

    /// A new SSL object for the server's side of a connection; nil if memory is short.
    ///
    /// The caller owns it, and keeps `self` during the handshake.
    ///
    /// - Parameter clients: Whether the client shows a certificate.
    func makeHandle(clients: TLSClientAuthentication) -> OpaquePointer? {
        guard let handle = unsafe SSL_new(contexts[0].handle) else { return nil }
        let mode: Int32 =
            switch clients {
            case .none: SSL_VERIFY_NONE
            case .optional: SSL_VERIFY_PEER
            case .requiredByAuthorities where authorities == nil: SSL_VERIFY_NONE
            case .required, .requiredByAuthorities: SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT
            }
        unsafe SSL_set_verify(handle, mode, nil)
        if mode != SSL_VERIFY_NONE {
            // A resumed session would not look at the certificate again, nor at the authorities; and one that was begun where
            // none is asked for would get in without any.
            _ = unsafe SSL_set_options(handle, COPENSSL_OP_NO_TICKET)
            _ = unsafe SSL_set_num_tickets(handle, 0)
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
