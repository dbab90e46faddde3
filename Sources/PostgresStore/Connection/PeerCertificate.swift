#if PostgreSQL
internal import COpenSSL
internal import CPostgres
internal import Glibc

/// The certificate that a server has shown, which libpq keeps in OpenSSL's session.
enum PeerCertificate {
    /// When it expires, in seconds since 1970; nil without TLS, or if libpq was built with another library for it.
    ///
    /// - Parameter connection: libpq's, of the calling thread.
    @unsafe static func expiry(_ connection: OpaquePointer) -> Int64? {
        guard let session = unsafe PQsslStruct(connection, "OpenSSL"),
            let certificate = unsafe SSL_get1_peer_certificate(OpaquePointer(session))
        else { return nil }
        defer { unsafe X509_free(certificate) }
        var time = unsafe tm()
        guard unsafe ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &time) == 1 else { return nil }
        return unsafe Int64(timegm(&time))
    }
}
#endif
