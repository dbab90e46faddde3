package import Cryptography

/// Why a value cannot be sealed or opened.
///
/// Says nothing of the value itself.
package enum SealingError: Error, Hashable, CustomStringConvertible {
    /// The key ring has no key of the number that the row was sealed with.
    case missingKey(number: Int)
    /// The row was changed or moved after it was sealed, or was sealed under another key.
    case tampered(keyNumber: Int)
    /// The row is shorter than any sealed row, or its text is not an id and a token info.
    case malformed
    /// Nothing may be sealed at present, as the text says.
    case refused(String)
    /// The row is not in one of the slots of its key.
    case misplaced
    /// A call of OpenSSL failed.
    case library(String)

    package init(_ error: CryptographyError) {
        switch error {
        case .library(let call): self = .library(call)
        }
    }

    package var description: String {
        switch self {
        case .missingKey(let number):
            "a row is sealed with key \(number), which the key ring does not have; put that key back"
        case .tampered(let number):
            "a row does not open with key \(number): it was changed, or key \(number) is not the one that sealed it"
        case .malformed: "a row is not in the sealed form"
        case .refused(let reason): reason
        case .misplaced: "a row is not where its id is looked for: it was moved, or its key was changed"
        case .library(let call): "\(CryptographyError.library(call))"
        }
    }
}
