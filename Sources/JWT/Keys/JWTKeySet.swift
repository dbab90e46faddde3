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
        // A byte order mark may be ignored (RFC 8259, section 8.1).
        let hasMark = text.count >= 3 && text[0] == 0xef && text[1] == 0xbb && text[2] == 0xbf
        var (usable, skipped) = try Self.read(hasMark ? text.extracting(droppingFirst: 3) : text, algorithms)
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
            let members = try object(text, range, memberLimit: JWK.memberLimit)
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
            throw JWTKeyError(error, tooManyMembers: .notKeySet)
        }
        guard case .array(let array) = set["keys"] else { throw .notKeySet }
        let objects = JSONObject.objects(text, array)
        guard objects.count <= keyLimit else { throw .tooManyKeys }
        return objects
    }

    private static func object(
        _ text: Span<UInt8>, _ range: Range<Int>, memberLimit: Int
    ) throws(JWTKeyError) -> JSONObject {
        do throws(JSONObject.Failure) {
            return try JSONObject(text, range, memberLimit: memberLimit).withoutNulls
        } catch {
            throw JWTKeyError(error, tooManyMembers: .notKeySet)
        }
    }
}

extension JWTKeyError {
    /// - Parameters:
    ///   - failure: Of an object of the set.
    ///   - tooManyMembers: For an object with too many members.
    fileprivate init(_ failure: JSONObject.Failure, tooManyMembers: JWTKeyError) {
        self =
            switch failure {
            case .malformed: .notJSON
            case .repeatedMember: .repeatedMember
            case .tooManyMembers: tooManyMembers
            }
    }
}
