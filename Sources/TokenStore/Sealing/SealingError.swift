/// Why a value cannot be sealed or opened.
///
/// Says nothing of the value itself.
package enum SealingError: Error, Hashable, CustomStringConvertible {
    /// The key ring has no key of the number that the row was sealed with.
    case missingKey(number: Int)
    /// The row is not what was sealed: changed, moved to another row, or sealed under another key.
    case tampered(keyNumber: Int)
    /// The row is shorter than anything sealed, or of a kind that this version does not know.
    case malformed
    /// The key has sealed as often as it may.
    case exhausted(keyNumber: Int)
    /// The row lies where nobody looks for it.
    case misplaced
    /// A call of OpenSSL's failed.
    case library(String)

    package var description: String {
        switch self {
        case .missingKey(let number):
            "a row is sealed with key \(number), which the key ring does not have; put that key back"
        case .tampered(let number):
            "a row does not open with key \(number): it was changed, or key \(number) is not the one that sealed it"
        case .malformed: "a row is not in the sealed form"
        case .exhausted(let number):
            """
            key \(number) has sealed \(SealCounts.limit) times, as often as one key may; make a new one with \
            token-cache keys add
            """
        case .misplaced: "a row is not where its id is looked for: it was moved, or its key was changed"
        case .library(let call): "OpenSSL's \(call) failed"
        }
    }
}
