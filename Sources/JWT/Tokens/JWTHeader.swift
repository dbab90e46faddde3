/// What a token's header says of its signature (RFC 7515, section 4).
///
/// Parameters that would name or hold a key (`jwk`, `jku`, `x5c`, `x5u`, `x5t`) are never looked at: keys come from the key
/// set alone (RFC 8725, section 3.10).
package struct JWTHeader {
    package let algorithm: JWTAlgorithm
    package let keyID: [UInt8]?

    private static let memberLimit = 32

    /// - Parameters:
    ///   - text: The decoded header.
    ///   - types: Those that are accepted, as `JWTRules` has them.
    package init(_ text: Span<UInt8>, types: [String]) throws(JWTRejection) {
        let members = try JSONObject(ofToken: text, memberLimit: Self.memberLimit)
        // Only a JWE has it (RFC 7516, section 9).
        guard !members.has("enc") else { throw .encrypted }
        guard case .string(let name) = members["alg"] else { throw .malformed }
        guard String(decoding: name, as: UTF8.self).lowercased() != "none" else { throw .unsigned }
        // No extension is understood, so each makes the token invalid (RFC 7515, section 4.1.11).
        guard !members.has("crit") else { throw .critical }
        guard !members.has("b64") else { throw .detached }
        // Claims need no content type; a nested token has JWT (RFC 7519, section 5.2).
        guard !members.has("cty") else { throw .nested }
        guard let algorithm = JWTAlgorithm(name: name) else { throw .unknownAlgorithm }
        self.algorithm = algorithm
        try Self.checkType(members["typ"], types)
        switch members["kid"] {
        case nil: keyID = nil
        case .string(let value): keyID = value
        default: throw .malformed
        }
    }

    /// Refuses tokens that were made for another purpose (RFC 8725, section 3.11).
    ///
    /// A token without `typ` is as unspecific as one with JWT, and counts as such: RFC 7519 (section 5.1) leaves `typ` to the
    /// issuer. Where only `at+jwt` is allowed, both are refused.
    private static func checkType(_ type: JSONObject.Value?, _ types: [String]) throws(JWTRejection) {
        let mediaType: String
        switch type {
        case nil: mediaType = JWTRules.mediaType("JWT")
        case .string(let value): mediaType = JWTRules.mediaType(String(decoding: value, as: UTF8.self))
        default: throw .malformed
        }
        guard types.contains(where: { $0.utf8.elementsEqual(mediaType.utf8) }) else { throw .type }
    }
}

extension JSONObject {
    /// Reads a token's header or claims.
    init(ofToken text: Span<UInt8>, memberLimit: Int) throws(JWTRejection) {
        do throws(Failure) {
            try self.init(text, memberLimit: memberLimit)
        } catch {
            throw error == .repeatedMember ? .repeatedMember : .malformed
        }
    }
}
