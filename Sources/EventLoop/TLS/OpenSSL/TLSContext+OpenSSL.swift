internal import COpenSSL

extension TLSContext {
    /// OpenSSL's version, for example `3.0.22`.
    package static var libraryVersion: String { unsafe String(cString: OpenSSL_version(OPENSSL_VERSION_STRING)) }

    /// Reads a certificate and its key as a listener does, without using them; blocks for as long as that takes.
    package static func examine(
        _ pair: TLSFiles.Pair, clientAuthorities: String?
    ) throws(TLSConfigurationError) -> TLSCertificate {
        try TLSServerContext(pair, clientAuthorities: clientAuthorities, applicationProtocols: []).certificate
    }
}
