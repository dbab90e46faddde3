internal import JSON
package import System

/// The public keys of the issuer: a JWK set (RFC 7517, section 5) without what cannot verify signatures here.
///
/// Immutable; any thread.
package struct JWTKeySet: Sendable {
    /// Keys that a set may have.
    package static let keyLimit = 100
    /// Members that the set itself may have.
    private static let memberLimit = 64

    private let keys: [JWK]
    /// Whether there is one key only, which tokens without `kid` may be signed with.
    private let isOnly: Bool

    /// The keys of the set that are not used, in their order.
    package let skipped: [SkippedKey]

    /// How many keys verify signatures.
    package var count: Int { keys.count }

    /// Reads a set; takes some milliseconds for each RSA key, which is tested.
    ///
    /// A key that cannot be used is skipped. The whole set is refused if it is not well-formed, if it has a private key, if two
    /// different keys have the same `kid` and the same algorithm, or if no key is left.
    ///
    /// - Parameters:
    ///   - text: JSON; the caller limits its length.
    ///   - algorithms: Those that are allowed. A key has the algorithm that its `alg` names, or else the first of these that
    ///     fits its kind.
    package init(parsing text: Span<UInt8>, algorithms: [JWTAlgorithm]) throws(JWTKeyError) {
        var (usable, skipped) = try Self.read(text, algorithms)
        if usable.count > 1 {
            for entry in usable where entry.jwk.keyID == nil {
                skipped.append(SkippedKey(position: entry.position, keyID: nil, reason: .withoutKeyID))
            }
            usable.removeAll { $0.jwk.keyID == nil }
        }
        skipped.sort { $0.position < $1.position }
        guard !usable.isEmpty else { throw .noUsableKey(skipped) }
        self.skipped = skipped
        isOnly = usable.count == 1 && !skipped.contains { $0.reason == .withoutKeyID }
        keys = usable.map(\.jwk)
    }

    /// The one key that a token may be signed with.
    ///
    /// Keys of several algorithms may have one id (RFC 7517, section 4.5). No other key takes the place of an unknown one. A
    /// token without `kid` belongs to the key of a set that has only one; OpenID Connect Core (section 10.1) asks for `kid`
    /// where there are several.
    ///
    /// - Parameters:
    ///   - keyID: The token's `kid`, compared byte by byte.
    ///   - algorithm: The token's `alg`.
    func key(for keyID: [UInt8]?, _ algorithm: JWTAlgorithm) throws(JWTRejection) -> PublicKey {
        if keyID == nil && !isOnly { throw .missingKeyID }
        let named = keyID == nil ? keys : keys.filter { $0.keyID == keyID }
        guard !named.isEmpty else { throw .unknownKey }
        guard let jwk = named.first(where: { $0.key.algorithm == algorithm }) else { throw .otherAlgorithm }
        return jwk.key
    }

    // MARK: - Reading

    /// A key that can be used, with its position in the set, counted from 1.
    private struct Entry {
        let position: Int
        let jwk: JWK
    }

    private static func read(
        _ text: Span<UInt8>, _ algorithms: [JWTAlgorithm]
    ) throws(JWTKeyError) -> (usable: [Entry], skipped: [SkippedKey]) {
        var usable: [Entry] = []
        var skipped: [SkippedKey] = []
        var position = 0
        for range in try objects(text) {
            position += 1
            guard let range else {
                skipped.append(SkippedKey(position: position, keyID: nil, reason: .notAnObject))
                continue
            }
            let members = try object(text, range)
            if let member = JWK.privateMember(of: members) {
                throw .privateKey(position: position, member: member)
            }
            let keyID = (try? JWK.keyID(of: members)) ?? nil
            switch Result(catching: { () throws(SkippedKey.Reason) in
                try JWK(members, in: text, algorithms: algorithms)
            }) {
            case .failure(let reason):
                skipped.append(SkippedKey(position: position, keyID: keyID, reason: reason))
            case .success(let jwk) where usable.contains { $0.jwk.isSame(as: jwk) }:
                skipped.append(SkippedKey(position: position, keyID: keyID, reason: .repeated))
            case .success(let jwk):
                if let keyID, usable.contains(where: { $0.jwk.takesTokens(of: jwk) }) {
                    throw .conflictingKeys(position: position, keyID: SkippedKey.printable(keyID))
                }
                usable.append(Entry(position: position, jwk: jwk))
            }
        }
        return (usable, skipped)
    }

    /// Where the objects of `keys` are.
    private static func objects(_ text: Span<UInt8>) throws(JWTKeyError) -> [Range<Int>?] {
        let set: JSONObject
        do throws(JSONObject.Failure) {
            set = try JSONObject(text, memberLimit: memberLimit)
        } catch {
            throw JWTKeyError(error)
        }
        guard case .array(let array) = set["keys"] else { throw .notKeySet }
        let objects = JSONObject.objects(text, array)
        guard objects.count <= keyLimit else { throw .tooManyKeys }
        return objects
    }

    private static func object(
        _ text: Span<UInt8>, _ range: Range<Int>
    ) throws(JWTKeyError) -> JSONObject {
        do throws(JSONObject.Failure) {
            return try JSONObject(text, range, memberLimit: JWK.memberLimit).withoutNulls
        } catch {
            throw JWTKeyError(error)
        }
    }
}

extension JWTKeyError {
    /// - Parameter failure: Of an object of the set.
    fileprivate init(_ failure: JSONObject.Failure) {
        self =
            switch failure {
            case .malformed: .notJSON
            case .repeatedMember: .repeatedMember
            case .tooManyMembers: .notKeySet
            }
    }
}

/// Why a whole key set is refused; to be read after the file's name.
///
/// Its text has nothing of the keys but their positions and printable ids.
package enum JWTKeyError: Error, Hashable, CustomStringConvertible {
    case unreadable(TrustedFile.Fault)
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
        case .unreadable(let fault): fault.description
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

/// The file with the issuer's keys (a JWK set), and the verifier that uses them.
package typealias JWTKeyFile = WatchedFiles<String, JWTVerifier, JWTKeyError>

extension JWTVerifier {
    /// Reads a file with a JWK set.
    ///
    /// - Parameters:
    ///   - path: Of the file.
    ///   - rules: What tokens have to be.
    package convenience init(keysOf path: String, _ rules: JWTRules) throws(JWTKeyError) {
        let text: [UInt8]
        do throws(TrustedFile.Fault) {
            text = try TrustedFile.read(path)
        } catch {
            throw .unreadable(error)
        }
        self.init(rules: rules, keys: try JWTKeySet(parsing: text.span, algorithms: rules.algorithms))
    }
}
