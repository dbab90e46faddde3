package import System

/// Why certificates and keys cannot be used, and what to do about it.
///
/// Its text names files and never shows what is in them.
package struct TLSConfigurationError: Error, Hashable, CustomStringConvertible {
    /// What is wrong with the file.
    package enum Problem: Hashable, Sendable {
        /// The file cannot be opened.
        case unreadable(SystemError)
        case noCertificate
        case noPrivateKey
        case encryptedPrivateKey
        case keyMismatch(certificate: String)
        case noClientAuthority
        /// OpenSSL itself failed, with the file at hand or before.
        case unusable
    }

    /// The path as configured.
    package let file: String
    package let problem: Problem
    /// OpenSSL's short reason; empty if the error does not come from OpenSSL.
    package let reason: String

    private static let noAccess = "check the path, and that the server's user may read it"

    package var description: String {
        let text =
            switch problem {
            case .unreadable(let error):
                "cannot be read: \(error.reason)\(error.fileAdvice(otherwise: Self.noAccess))"
            case .noCertificate:
                "holds no usable certificate; give a PEM file with the server's certificate first and the "
                    + "intermediate ones after it"
            case .noPrivateKey:
                "holds no usable private key; give an unencrypted PEM file"
            case .encryptedPrivateKey:
                "is encrypted with a passphrase, which cannot be entered here; store it with "
                    + "\"openssl pkey -in FILE -out NEW\" and let only the server's user read it"
            case .keyMismatch(let certificate):
                "does not belong to the certificate in \(certificate); put the pair in place together"
            case .noClientAuthority:
                "holds no certificate authority for client certificates; give a PEM file with at least one"
            case .unusable:
                "cannot be used"
            }
        return reason.isEmpty ? "\(file) \(text)" : "\(file) \(text) (OpenSSL: \(reason))"
    }
}
