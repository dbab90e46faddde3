internal import JSON

/// The text of a file of keys: a line of JSON for each.
///
///     {"name":"backend","scopes":["sessions","tokens:read"],"sha256":"…64 digits…","created":1795356800,"expires":1803132800}
///
/// Times are in seconds since 1970; `expires` may be missing. Empty lines and lines that begin with `#` are skipped. A member
/// that is not known is an error: a mistyped `expires` would make a key that never ends.
enum BearerKeysText<Scope: BearerKeyScope> {
    /// Why a text holds no keys; lines count from 1.
    struct Malformed: Error, Hashable {
        let line: Int
        let reason: String
    }

    static func keys(of text: [UInt8]) throws(Malformed) -> BearerKeys<Scope> {
        var keys = BearerKeys<Scope>()
        for (index, line) in text.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).enumerated() {
            let content = line.drop { $0 == 0x20 || $0 == 0x09 || $0 == 0x0d }
            if content.isEmpty || content.first == UInt8(ascii: "#") { continue }
            let fault: String
            do throws(Fault) {
                let entry = try Self.entry(Array(content))
                do throws(BearerKeys<Scope>.AdditionError) {
                    try keys.add(entry.key, digest: entry.digest)
                    continue
                } catch {
                    switch error {
                    case .nameExists: fault = "\(entry.key.name) is the name of an earlier key too"
                    case .secretExists: fault = "an earlier key has the same secret as \(entry.key.name)"
                    case .tooMany: fault = "there are more than \(BearerKeys<Scope>.limit) keys"
                    }
                }
            } catch {
                fault = error.reason
            }
            throw Malformed(line: index + 1, reason: fault)
        }
        return keys
    }

    /// Never empty, so that a file without keys differs from one whose text was lost.
    static func bytes(of keys: BearerKeys<Scope>) -> [UInt8] {
        if keys.entries.isEmpty { return Array("# no keys\n".utf8) }
        let lines = keys.entries.map { entry in
            // Neither names nor scopes have characters that JSON would escape.
            let scopes = Scope.allCases.filter(entry.key.scopes.contains).map { "\"\($0.rawValue)\"" }
            let expires = entry.key.expiresAt.map { ",\"expires\":\($0)" } ?? ""
            return """
                {"name":"\(entry.key.name)","scopes":[\(scopes.joined(separator: ","))],\
                "sha256":"\(hex(entry.digest))","created":\(entry.key.createdAt)\(expires)}

                """
        }
        return Array(lines.joined().utf8)
    }

    // MARK: - A line

    private struct Fault: Error {
        let reason: String
    }

    /// The members of a line.
    private struct Members {
        var name: String?
        var scopes: Set<Scope>?
        var digest: [UInt8]?
        var created: Int64?
        var expires: Int64?
        var seen: Set<[UInt8]> = []
        /// Why the line is refused although it is JSON.
        var reason: String?
    }

    private static func entry(_ line: [UInt8]) throws(Fault) -> BearerKeys<Scope>.Entry {
        let bytes = line.span
        var scanner = JSONScanner(position: 0, end: bytes.count)
        var members = Members()
        do throws(JSONScanner.Malformed) {
            try scanner.expect(UInt8(ascii: "{"), bytes)
            try scanner.forEachMember(bytes) { (name, scanner) throws(JSONScanner.Malformed) in
                try read(name, &members, &scanner, bytes)
            }
            scanner.skipSpace(bytes)
            guard scanner.isAtEnd else { throw JSONScanner.Malformed() }
        } catch {
            throw Fault(
                reason: members.reason
                    ?? "it is no \(Scope.kind.name) as token-cache \(Scope.kind.command) add writes one")
        }
        guard let name = members.name, let scopes = members.scopes, let digest = members.digest,
            let created = members.created
        else { throw Fault(reason: "a key needs name, scopes, sha256 and created") }
        let key = BearerKey<Scope>(name: name, scopes: scopes, createdAt: created, expiresAt: members.expires)
        return BearerKeys<Scope>.Entry(key: key, digest: digest)
    }

    private static func read(
        _ name: [UInt8], _ members: inout Members, _ scanner: inout JSONScanner, _ bytes: Span<UInt8>
    ) throws(JSONScanner.Malformed) {
        let member = String(decoding: name, as: UTF8.self)
        guard members.seen.insert(name).inserted else { throw refuse("a member is there twice", &members) }
        switch member {
        case "name":
            let text = String(decoding: try scanner.string(bytes), as: UTF8.self)
            guard BearerKey<Scope>.isName(text) else {
                throw refuse("its name is not allowed; allowed is \(BearerKey<Scope>.allowedNames)", &members)
            }
            members.name = text
        case "scopes": members.scopes = try scopes(&members, &scanner, bytes)
        case "sha256":
            guard let digest = digest(try scanner.string(bytes)) else {
                throw refuse("its sha256 is not 64 hexadecimal digits in lower case", &members)
            }
            members.digest = digest
        case "created", "expires":
            let start = scanner.position
            try scanner.skipValue(bytes, depth: 0)
            let text = bytes.extracting(start..<scanner.position)
            var digits = ""
            for index in text.indices { digits.unicodeScalars.append(Unicode.Scalar(text[index])) }
            guard let time = Int64(digits), time >= 0 else {
                throw refuse("\(member) is no number of seconds since 1970", &members)
            }
            if member == "created" { members.created = time } else { members.expires = time }
        default:
            throw refuse("it has an unknown member; allowed are name, scopes, sha256, created and expires", &members)
        }
    }

    private static func scopes(
        _ members: inout Members, _ scanner: inout JSONScanner, _ bytes: Span<UInt8>
    ) throws(JSONScanner.Malformed) -> Set<Scope> {
        let allowed = Scope.allCases.map(\.rawValue).joined(separator: ", ")
        var scopes: Set<Scope> = []
        try scanner.expect(UInt8(ascii: "["), bytes)
        repeat {
            scanner.skipSpace(bytes)
            guard scanner.peek(bytes) == UInt8(ascii: "\""),
                let scope = Scope(rawValue: String(decoding: try scanner.string(bytes), as: UTF8.self))
            else { throw refuse("it has an unknown scope or none; allowed are \(allowed)", &members) }
            scopes.insert(scope)
            scanner.skipSpace(bytes)
            if scanner.peek(bytes) == UInt8(ascii: "]") { break }
            try scanner.expect(UInt8(ascii: ","), bytes)
        } while true
        try scanner.expect(UInt8(ascii: "]"), bytes)
        return scopes
    }

    /// Ends the reading of a line for a reason.
    private static func refuse(_ reason: String, _ members: inout Members) -> JSONScanner.Malformed {
        members.reason = reason
        return JSONScanner.Malformed()
    }

    // MARK: - Digests

    private static var digits: [UInt8] { Array("0123456789abcdef".utf8) }

    private static func hex(_ bytes: [UInt8]) -> String {
        String(decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }

    private static func digest(_ text: [UInt8]) -> [UInt8]? {
        let values = text.compactMap { digits.firstIndex(of: $0) }
        guard values.count == 64, text.count == 64 else { return nil }
        return stride(from: 0, to: 64, by: 2).map { UInt8(values[$0] << 4 | values[$0 + 1]) }
    }
}
