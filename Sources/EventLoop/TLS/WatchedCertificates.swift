import COpenSSL
import Glibc
import Synchronization
package import System

/// The certificates, keys and authorities that the TLS connections of all listeners share, read again when their files change.
///
/// Connections keep the certificates that they began with, so a reload affects later connections only. But if it changes the
/// authorities for clients' certificates, connections whose clients may have been asked for a certificate end.
///
/// Session tickets are encrypted with a key that each reading of the files makes anew; a client with an older ticket does a full
/// handshake. Reloaded once a day even without a change, this limits what a stolen ticket key can decrypt.
package typealias WatchedCertificates = WatchedFiles<TLSFiles, TLSCredentials, KeyFileError>

extension WatchedCertificates {
    /// Reads the files; blocks for as long as that takes.
    package convenience init(_ files: TLSFiles) throws(KeyFileError) {
        let trusted = TLSTrustedAuthorities()
        try self.init(
            files, paths: \.paths,
            { files throws(KeyFileError) in try TLSCredentials(files, trusted) },
            didUse: { trusted.number.store($0.authoritiesNumber, ordering: .relaxed) })
    }

    /// The TLS library's version, for example `3.0.22`.
    package static var libraryVersion: String { unsafe String(cString: OpenSSL_version(OPENSSL_VERSION_STRING)) }

    /// Reads a certificate and its key as a listener does, without using them; blocks for as long as that takes.
    package static func examine(_ pair: TLSFiles.Pair) throws(KeyFileError) -> TLSCertificate {
        try TLSServerContext(pair, nil).certificate(from: pair.certificateChain)
    }

    /// Reads the authorities for clients' certificates as a listener does, without using them.
    package static func examine(authorities path: String) throws(KeyFileError) -> TLSClientAuthorities {
        try TLSAuthorities(file: path).summary
    }

    /// The certificates in use, in the order of the files.
    package var certificates: [TLSCertificate] { content.certificates }

    /// When the first of the certificates in use expires, in seconds since 1970.
    package var earliestExpiry: Int64 { certificates.map(\.expiry).min() ?? 0 }

    /// The authorities for clients' certificates that are in use; nil if no client shows one.
    package var clientAuthorities: TLSClientAuthorities? { content.clientAuthorities }
}

/// The files that a TLS listener is configured with, all in PEM.
package struct TLSFiles: Hashable, Sendable {
    /// A certificate with its intermediate ones, and the key it belongs to.
    package struct Pair: Hashable, Sendable {
        /// The server's certificate first, then those that signed it; the root may be missing.
        package let certificateChain: String
        /// Not encrypted.
        package let privateKey: String

        package init(certificateChain: String, privateKey: String) {
            self.certificateChain = certificateChain
            self.privateKey = privateKey
        }
    }

    /// Chosen by the names in their certificates; a name that repeats belongs to the earlier pair.
    ///
    /// The first pair also serves clients that ask for no server name, or for one that no certificate has.
    package let pairs: [Pair]
    /// The authorities of which one must have signed a client's certificate; nil if no client shows one.
    package let clientAuthorities: String?

    /// - Parameters:
    ///   - pairs: At least one.
    ///   - clientAuthorities: Nil if no client shows a certificate.
    package init(_ pairs: [Pair], clientAuthorities: String? = nil) {
        precondition(!pairs.isEmpty, "TLS needs a certificate")
        self.pairs = pairs
        self.clientAuthorities = clientAuthorities
    }

    /// All files, in a fixed order; one that is both certificate and key is there twice.
    var paths: [String] {
        pairs.flatMap { [$0.certificateChain, $0.privateKey] } + [clientAuthorities].compactMap(\.self)
    }
}

/// The certificates and keys of one reading of a listener's files, which never change afterwards.
///
/// Any thread.
package final class TLSCredentials: @unchecked Sendable {
    // Unchecked: nothing changes after init, and OpenSSL counts references to its contexts atomically.

    private var contexts: [TLSServerContext] = []
    private let authorities: TLSAuthorities?
    private let trusted: TLSTrustedAuthorities
    /// In the order of the files.
    private(set) var certificates: [TLSCertificate] = []

    fileprivate init(_ files: TLSFiles, _ trusted: TLSTrustedAuthorities) throws(KeyFileError) {
        self.trusted = trusted
        authorities = try files.clientAuthorities.map { (path) throws(KeyFileError) in
            try TLSAuthorities(file: path)
        }
        var places: [Set<String>: Int] = [:]
        for pair in files.pairs {
            let context = try TLSServerContext(pair, authorities)
            let certificate = context.certificate(from: pair.certificateChain)
            certificates.append(certificate)
            let place = Set(certificate.names.map { $0.lowercased() })
            if let index = places[place], !place.isEmpty {
                // RSA beside ECDSA, for clients that cannot check the other.
                try contexts[index].load(pair, context.certificates)
                continue
            }
            places[place] = contexts.count
            contexts.append(context)
        }
        // With one certificate there is nothing to choose.
        if contexts.count > 1 { chooseByName() }
    }

    /// The authorities for clients' certificates; nil if no client shows one.
    var clientAuthorities: TLSClientAuthorities? { authorities?.summary }

    /// Equal for equal authorities; 0 if there are none.
    fileprivate var authoritiesNumber: Int { authorities?.number ?? 0 }

    /// Whether the authorities in use are still these; also if there are still none.
    var areAuthoritiesTrusted: Bool { trusted.number.load(ordering: .relaxed) == authoritiesNumber }

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
        unsafe SSL_set_verify(handle, mode) { isValid, verification in
            // OpenSSL takes a client's key over TLS 1.2 only if its curve is in the list of groups for the key exchange, which
            // is over by now.
            _ = unsafe copenssl_set_groups_of_session(verification, "prime256v1:secp384r1:secp521r1")
            return isValid
        }
        if mode != SSL_VERIFY_NONE {
            // A resumed session would check neither the certificate nor the authorities again, and one from a listener that
            // asks for no certificate would be accepted without any.
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
    /// Exact names come before wildcards, and earlier certificates before later ones. An unknown name gets the first certificate
    /// rather than an alert: clients without names and probes by address work.
    private func choose(for session: OpaquePointer?) -> Int32 {
        guard let asked = unsafe SSL_get_servername(session, TLSEXT_NAMETYPE_host_name) else {
            return SSL_TLSEXT_ERR_NOACK
        }
        var name = unsafe String(cString: asked)
        // A client may ask for a complete name, which ends with a dot (RFC 1034, section 3.1); certificates have none.
        if name.last == "." { name.removeLast() }
        guard
            let context = contexts.first(where: { $0.isFor(name, isExact: true) })
                ?? contexts.first(where: { $0.isFor(name, isExact: false) })
        else { return SSL_TLSEXT_ERR_NOACK }
        // Tickets stay with the first context's key, so that they work for every name.
        _ = unsafe SSL_set_SSL_CTX(session, context.handle)
        return SSL_TLSEXT_ERR_OK
    }
}

/// The number of the authorities in use, so that requests can compare it without taking a mutex.
private final class TLSTrustedAuthorities: Sendable {
    let number = Atomic<Int>(0)
}
