/// The public keys of the issuer: a JWK set (RFC 7517, section 5) without what cannot verify signatures here.
///
/// Immutable; any thread.
package struct JWTKeySet: Sendable {
    /// Keys that a set may have.
    package static let keyLimit = 100
    /// Members that the set itself may have.
    private static let memberLimit = 64

    private let keys: [[UInt8]: PublicKey]
    /// The key for tokens without `kid`; only a set of exactly one usable key has one.
    private let only: PublicKey?

    /// The keys of the set that are not used, in their order.
    package let skipped: [SkippedKey]

    /// How many keys verify signatures.
    package let count: Int

    /// Reads a set; takes some milliseconds for each RSA key, which is tested.
    ///
    /// A key that cannot be used is skipped. The whole set is refused if it is not well-formed, if it has a private key, if two
    /// different keys have the same `kid`, or if no key is left.
    ///
    /// - Parameters:
    ///   - text: JSON; the caller limits its length.
    ///   - algorithms: Those that are allowed. A key has the algorithm that its `alg` names, or else the first of these that
    ///     fits its kind.
    package init(parsing text: Span<UInt8>, algorithms: [JWTAlgorithm]) throws(JWTKeyError) {
        var (usable, skipped) = try Self.read(text, algorithms)
        if usable.count == 1 {
            only = usable[0].jwk.key
        } else {
            only = nil
            for entry in usable where entry.jwk.keyID == nil {
                skipped.append(SkippedKey(position: entry.position, keyID: nil, reason: .withoutKeyID))
            }
            usable.removeAll { $0.jwk.keyID == nil }
        }
        skipped.sort { $0.position < $1.position }
        guard !usable.isEmpty else { throw .noUsableKey(skipped) }
        self.skipped = skipped
        count = usable.count
        keys = Dictionary(
            uniqueKeysWithValues: usable.compactMap { entry in entry.jwk.keyID.map { ($0, entry.jwk.key) } }
        )
    }

    /// The one key that a token may be signed with; nil if there is none.
    ///
    /// - Parameter keyID: The token's `kid`, compared byte by byte. No other key takes the place of an unknown one. A token
    ///   without `kid` belongs to the key of a set that has only one; OpenID Connect Core (section 10.1) asks for `kid`
    ///   where there are several.
    func key(for keyID: [UInt8]?) -> PublicKey? {
        guard let keyID else { return only }
        return keys[keyID]
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
                if let keyID, usable.contains(where: { $0.jwk.keyID == keyID }) {
                    throw .conflictingKeys(position: position, keyID: SkippedKey.printable(keyID))
                }
                usable.append(Entry(position: position, jwk: jwk))
            }
        }
        return (usable, skipped)
    }

    /// Where the objects of `keys` are.
    private static func objects(_ text: Span<UInt8>) throws(JWTKeyError) -> [Range<Int>] {
        let set: JSONObject
        do throws(JSONObject.Failure) {
            set = try JSONObject(text, memberLimit: memberLimit)
        } catch {
            throw JWTKeyError(error, tooManyMembers: .notKeySet)
        }
        guard case .array(let array) = set["keys"],
            let objects = JSONObject.objects(text, array)
        else { throw .notKeySet }
        guard objects.count <= keyLimit else { throw .tooManyKeys }
        return objects
    }

    private static func object(
        _ text: Span<UInt8>, _ range: Range<Int>, memberLimit: Int
    ) throws(JWTKeyError) -> JSONObject {
        do throws(JSONObject.Failure) {
            return try JSONObject(text, range, memberLimit: memberLimit)
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
