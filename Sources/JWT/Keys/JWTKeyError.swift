/// Why a whole key set is refused.
///
/// Its text has nothing of the keys but their positions and printable ids.
package enum JWTKeyError: Error, Hashable, CustomStringConvertible {
    case notJSON
    /// The object has no array `keys`.
    case notKeySet
    case tooManyKeys
    /// The set or one of its keys has a member twice.
    case repeatedMember
    /// Whoever reads the set could sign tokens.
    case privateKey(position: Int, member: String)
    /// Two different keys have the same `kid` and the same algorithm.
    case conflictingKeys(position: Int, keyID: String?)
    /// None is left after the skipped ones.
    case noUsableKey([SkippedKey])

    package var description: String {
        switch self {
        case .notJSON: "is not a JSON object in UTF-8; give a JWK set: {\"keys\":[...]}"
        case .notKeySet: "has no array named keys; give a JWK set: {\"keys\":[...]}"
        case .tooManyKeys: "has more than \(JWTKeySet.keyLimit) keys; leave out those of other uses"
        case .repeatedMember: "has an object with the same member twice; each may stand there once"
        case .privateKey(let position, let member):
            "has the private part of key \(position) (member \(member)), with which anybody could sign tokens; give the "
                + "public keys only, and replace that key at the issuer if others could read it"
        case .conflictingKeys(let position, let keyID):
            "gives key \(position) the kid of another key of its algorithm\(keyID.map { " (\($0))" } ?? ""); each needs its own"
        case .noUsableKey(let skipped):
            skipped.isEmpty
                ? "has no keys; give at least one public key"
                : "has no usable key (\(skipped.map(\.description).joined(separator: ", "))); give a public key for signatures"
        }
    }
}
