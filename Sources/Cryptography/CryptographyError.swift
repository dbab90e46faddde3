/// Why a cryptographic operation failed.
package enum CryptographyError: Error, Hashable, CustomStringConvertible {
    /// A call of OpenSSL failed, which is named.
    case library(String)

    package var description: String {
        switch self {
        case .library(let call): "OpenSSL's \(call) failed"
        }
    }
}
