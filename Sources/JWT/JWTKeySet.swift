import JSON
package import System

/// The public keys of the issuer: a JWK set (RFC 7517, section 5) without the keys that cannot be used.
///
/// Immutable; any thread.
package struct JWTKeySet: Sendable {
    /// Keys that a set may have.
    static let keyLimit = 100
    /// Members that the set itself may have.
    private static let memberLimit = 64

    /// The keys in use.
    private let keys: [JWK]
    /// Whether the set has only one key, which tokens without `kid` may then be signed with.
    private let isOnly: Bool

    /// The keys of the set that are not used, in their order.
    package let skipped: [SkippedKey]

    /// How many keys verify signatures.
    package var count: Int { keys.count }

    /// Which algorithms each key has, or why it is not used.
    package var summary: String {
        let used = keys.map { "\($0.name): \($0.algorithms.text)" }
        return (used + skipped.map(\.description)).joined(separator: "; ")
    }

    /// Reads a set; takes some milliseconds for each RSA key, which is tested.
    ///
    /// A key that cannot be used is skipped. The whole set is refused if it is not well-formed, if it has a private key, or if no
    /// key is left.
    ///
    /// - Parameters:
    ///   - text: JSON; the caller limits its length.
    ///   - path: The file's path, for errors.
    package init(parsing text: Span<UInt8>, of path: String) throws(KeyFileError) {
        var usable: [(position: Int, jwk: JWK)] = []
        var skipped: [SkippedKey] = []
        for (index, members) in try Self.objects(text, path).enumerated() {
            let position = index + 1
            if let member = members.flatMap(JWK.privateMember) {
                throw KeyFileError(
                    path,
                    """
                    has the private part of key \(position) (member \(member)), with which anybody could sign tokens; give \
                    the public keys only, and replace that key at the issuer if others could read it
                    """)
            }
            do throws(SkippedKey.Reason) {
                guard let members else { throw .notAnObject }
                usable.append((position, try JWK(members, in: text)))
            } catch {
                skipped.append(SkippedKey(position: position, keyID: members.flatMap(JWK.keyID), reason: error))
            }
        }
        let nameless = usable.count > 1 ? usable.filter { $0.jwk.keyID == nil } : []
        if !nameless.isEmpty {
            usable.removeAll { $0.jwk.keyID == nil }
            skipped += nameless.map { SkippedKey(position: $0.position, keyID: nil, reason: .withoutKeyID) }
            skipped.sort { $0.position < $1.position }
        }
        guard !usable.isEmpty else {
            let faults = skipped.map(\.description).joined(separator: ", ")
            let found = skipped.isEmpty ? "has no key" : "has no key that can be used (\(faults))"
            throw KeyFileError(path, "\(found); give at least one public key for signatures")
        }
        self.skipped = skipped
        isOnly = usable.count == 1 && nameless.isEmpty
        keys = usable.map(\.jwk)
    }

    /// The objects of `keys`, with nil for elements of another kind.
    private static func objects(_ text: Span<UInt8>, _ path: String) throws(KeyFileError) -> [JSONObject?] {
        func refusal(_ fault: String) -> KeyFileError {
            KeyFileError(
                path, #"is not a JWK set: \#(fault); give what the issuer serves as its jwks_uri, {"keys":[...]}"#)
        }
        guard let set = JSONObject(text, memberLimit: memberLimit) else {
            throw refusal("it is no JSON object in UTF-8, or has a member twice or more than \(memberLimit) of them")
        }
        guard case .array(let array) = set["keys"] else { throw refusal(#"it has no array "keys""#) }
        let ranges = JSONObject.objects(text, array)
        guard ranges.count <= keyLimit else {
            throw refusal("it has \(ranges.count) keys, more than the \(keyLimit) that are read")
        }
        return try ranges.enumerated().map { (index, range) throws(KeyFileError) in
            guard let range else { return nil }
            guard let object = JSONObject(text, range, memberLimit: JWK.memberLimit) else {
                throw refusal("key \(index + 1) has a member twice or more than \(JWK.memberLimit) of them")
            }
            return object.withoutNulls
        }
    }

    /// The keys that a token may be signed with, at least one.
    ///
    /// Several keys may have one id (RFC 7517, section 4.5). An unknown id is refused. A token or a key without `kid` is accepted only
    /// if the set has a single key; OpenID Connect Core (section 10.1) asks for `kid` where there are several.
    ///
    /// - Parameter keyID: The token's `kid`, compared byte by byte.
    func keys(for keyID: [UInt8]?) throws(JWTRejection) -> [JWK] {
        if isOnly && (keyID == nil || keys[0].keyID == nil) { return [keys[0]] }
        guard let keyID else { throw .missingKeyID }
        let named = keys.filter { $0.keyID == keyID }
        guard !named.isEmpty else { throw .unknownKey }
        return named
    }
}

extension JWTVerifier {
    /// Reads a file with a JWK set.
    ///
    /// - Parameters:
    ///   - path: The path of the file.
    ///   - rules: What is required of tokens.
    ///   - report: As for the other initializer.
    package convenience init(
        keysOf path: String, _ rules: JWTRules, report: @escaping @Sendable (String) -> Void = { _ in }
    ) throws(KeyFileError) {
        let text = try TrustedFile.read(path)
        self.init(rules: rules, keys: try JWTKeySet(parsing: text.span, of: path), report: report)
    }
}
