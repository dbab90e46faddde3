package import HTTP
internal import JSON

/// The parameters in an `application/json` body: an extension of the contract that a setting turns on.
///
/// The whole body must be one JSON object (RFC 8259). `unique_id` is a string. `token_info` is a string, or an object, which is
/// stored as its text. Of equal names the last counts. Any other body has no parameters.
package struct JSONBody {
    package private(set) var uniqueID: [UInt8]?
    private(set) var tokenInfo: [UInt8]?
    /// Read for the API alone; the contract knows no such member.
    private(set) var user: [UInt8]?

    package init?(_ range: ByteRange, of bytes: Span<UInt8>, readsUser: Bool = false) {
        var scanner = JSONScanner(position: Int(range.start), end: Int(range.end))
        do throws(JSONScanner.Malformed) {
            scanner.skipSpace(bytes)
            try scanner.expect(UInt8(ascii: "{"), bytes)
            try scanner.forEachMember(bytes) { (name, scanner) throws(JSONScanner.Malformed) in
                if name == Names.uniqueID {
                    uniqueID = try scanner.string(bytes)
                } else if name == Names.tokenInfo {
                    tokenInfo =
                        scanner.peek(bytes) == UInt8(ascii: "{")
                        ? try scanner.objectText(bytes) : try scanner.string(bytes)
                } else if readsUser, name == Names.user {
                    user = try scanner.string(bytes)
                } else {
                    try scanner.skipValue(bytes, depth: 1)
                }
            }
            scanner.skipSpace(bytes)
            guard scanner.isAtEnd else { return nil }
        } catch {
            return nil
        }
    }

    private enum Names {
        static let uniqueID = Array("unique_id".utf8)
        static let tokenInfo = Array("token_info".utf8)
        static let user = Array("user".utf8)
    }
}
