internal import COpenSSL

/// The certificates by which clients' certificates are verified, as one reading of their file has found them.
///
/// Each is trusted by itself: an intermediate authority without its root too.
///
/// Any thread, as it does not change after init.
@safe final class TLSAuthorities {
    private var certificates: [OpaquePointer] = unsafe []
    /// What the file holds.
    private(set) var summary: TLSClientAuthorities
    /// Equal for equal certificates, and different for others.
    private(set) var number = 0

    init(file path: String) throws(TLSConfigurationError) {
        summary = TLSClientAuthorities(path: path)
        let text = try PEMText.contents(of: path)
        let lines = text.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
        let starts = lines.indices.filter { lines[$0].starts(with: Self.beginning) }
        var digests = Hasher()
        // One by one, so that a block that is damaged costs only itself.
        for (start, end) in zip(starts, starts.dropFirst() + [lines.endIndex]) {
            let block = try PEMText(ArraySlice(lines[start..<end].joined(separator: [UInt8(ascii: "\n")])), of: path)
            guard let certificate = unsafe PEM_read_bio_X509_AUX(block.source, nil, { _, _, _, _ in -1 }, nil) else {
                let reason = OpenSSLErrors.drain().first
                let kind = reason?.isEndOfPEM == true ? "it is no certificate" : "OpenSSL: \(reason?.text ?? "unknown")"
                summary.leftOut.append("line \(start + 1) (\(kind))")
                continue
            }
            unsafe certificates.append(certificate)
            unsafe digests.combine(TLSClientCertificate(certificate)?.thumbprint)
            unsafe summary.taken.append(
                .init(name: CertificateNames.subject(certificate), expiry: CertificateTime.expiry(certificate)))
        }
        guard unsafe !certificates.isEmpty else {
            throw TLSConfigurationError(file: path, problem: .noClientAuthority, reason: "")
        }
        number = digests.finalize()
    }

    private static let beginning = Array("-----BEGIN ".utf8)

    deinit {
        for index in unsafe certificates.indices { unsafe X509_free(certificates[index]) }
    }

    /// Has the sessions of an SSL_CTX verify clients' certificates, and tell clients which they may show.
    func trust(in context: OpaquePointer) {
        let store = unsafe SSL_CTX_get_cert_store(context)
        _ = unsafe X509_STORE_set_flags(store, UInt(X509_V_FLAG_PARTIAL_CHAIN))
        for index in unsafe certificates.indices {
            _ = unsafe X509_STORE_add_cert(store, certificates[index])
            _ = unsafe SSL_CTX_add_client_CA(context, certificates[index])
        }
    }
}
