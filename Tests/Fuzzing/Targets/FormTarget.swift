import HTTP
import TokenService

extension FuzzTarget {
    /// The parameters of a request, in its query and in a body of any kind.
    ///
    /// The first line of the input is the query, the second one the Content-Type, and the rest is the body.
    static let forms = FuzzTarget(
        "forms",
        words: [
            "unique_id=", "token_info=", "unique_id", "token_info", "unique%5Fid=", "unique_id[]=", "unique_id[a]b=",
            "&", "=",
            "+", "%", "%41", "%00", "%5b", "%zz", "\r\n", "\n", "--b", "--b--", "--b\r\n", "\r\n\r\n", "\0", "\u{b}",
            "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "application/json",
            "boundary=\"b\"",
            "Content-Disposition: form-data; name=\"unique_id\"\r\n\r\n", "Content-Disposition: ", "name=token_info",
            "filename=", "; ", "\"", "'", "\\\"", "\\", "{\"unique_id\":\"a\",", "\"token_info\":", "{}", "\\u0061",
        ]
    ) { input in
        for readsJSON in [false, true] {
            guard let found = parameters(ofForm: input, readsJSON: readsJSON) else { return }
            let parts = input.split(separator: UInt8(ascii: "\n"), maxSplits: 2, omittingEmptySubsequences: false)
            let model = FormModel(parts[0].text, parts[1].text.trimmed, parts[2].text, readsJSON: readsJSON)
            try compare(found[0]?.text.string, model.parameters["unique_id"]?.string, "the unique id")
            try compare(found[1]?.text.string, model.parameters["token_info"]?.string, "the token info")
        }
    }

    /// The unique id and the token info of an input; nil if it is no request.
    static func parameters(ofForm input: [UInt8], readsJSON: Bool) -> [[UInt8]?]? {
        let parts = input.split(separator: UInt8(ascii: "\n"), maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count == 3 else { return nil }
        let (query, type, body) = (parts[0], parts[1], parts[2])
        var reader = RequestReader(limits: RequestLimits())
        reader.bytes = Array("POST /t?".utf8) + query + Array(" HTTP/1.1\r\nHost: a\r\nContent-Type: ".utf8)
        reader.bytes += type + Array("\r\nContent-Length: \(body.count)\r\n\r\n".utf8) + body
        // The query and the type may be what no request has.
        guard case .request = reader.next(), reader.bodyCount == body.count,
            reader.request.head.query.count == query.count
        else { return nil }
        let found = RequestFields(reader.request, in: reader.requestBytes, readsJSON: readsJSON)
        return [found.uniqueID, found.tokenInfo]
    }
}

/// The parameters of a POST as PHP 8.2 reads them (main/php_variables.c and main/rfc1867.c).
struct FormModel {
    private(set) var parameters: [String: Text] = [:]

    init(_ query: Text, _ contentType: Text, _ body: Text, readsJSON: Bool) {
        // An empty segment of a query does not count, one of a body does.
        note(Self.pairs(query.split(separator: "&").prefix(1_000)))
        guard !body.isEmpty else { return }
        switch contentType.prefix(while: { $0 != ";" && $0 != "," && $0 != " " }).lowercased {
        case "application/x-www-form-urlencoded":
            note(Self.pairs(body.split(separator: "&", omittingEmptySubsequences: false).prefix(1_001)))
        case "multipart/form-data":
            if let boundary = Self.boundary(contentType) { note(MultipartModel(body, boundary: boundary).fields) }
        case "application/json" where readsJSON:
            guard case .object(let members)? = JSONModel.value(of: body) else { return }
            note(members)
        default: break
        }
    }

    // MARK: - Parameters

    private mutating func note(_ pairs: [(name: Text, value: Text)]) {
        for (name, value) in pairs {
            for parameter in ["unique_id", "token_info"] {
                if name.string == parameter { parameters[parameter] = value }
                let index = name.dropFirst(parameter.unicodeScalars.count)
                // An array takes the place of a value.
                if name.hasPrefix(parameter), index.first == "[", index.contains("]"), !name.contains("\0") {
                    parameters[parameter] = nil
                }
            }
        }
    }

    /// Members of a JSON object, each of them once, all of which have to be what they should.
    private mutating func note(_ members: [JSONModel.Member]) {
        guard members.count <= 256, Set(members.map(\.name)).count == members.count else { return }
        var found: [String: Text] = [:]
        for member in members {
            switch (member.name.string, member.value) {
            case ("unique_id", .string(let text)), ("token_info", .string(let text)): found[member.name.string] = text
            case ("token_info", .object): found["token_info"] = member.text
            case ("unique_id", _), ("token_info", _): return
            default: break
            }
        }
        parameters.merge(found) { $1 }
    }

    // MARK: - Encodings

    private static func pairs(_ segments: some Sequence<Text>) -> [(name: Text, value: Text)] {
        segments.filter { !$0.isEmpty }.map { segment in
            let name = segment.prefix { $0 != "=" }
            return (decoded(name), decoded(segment.dropFirst(name.count + 1)))
        }
    }

    private static func decoded(_ text: Text) -> Text {
        var (decoded, rest): (Text, Text) = ([], text)
        while let next = rest.popFirst() {
            let digits = rest.prefix(2)
            if next == "%", digits.count == 2, digits.allSatisfy(\.isHexadecimal),
                let byte = UInt8(digits.string, radix: 16)
            {
                decoded.append(Unicode.Scalar(byte))
                rest = rest.dropFirst(2)
            } else {
                decoded.append(next == "+" ? " " : next)
            }
        }
        return decoded
    }

    private static func boundary(_ contentType: Text) -> Text? {
        guard let start = contentType.indices.first(where: { contentType[$0...].lowercased.hasPrefix("boundary") }),
            let equals = contentType[start...].firstIndex(of: "=")
        else { return nil }
        let value = contentType[(equals + 1)...]
        guard value.first == "\"" else { return value.prefix { $0 != ";" && $0 != "," } }
        let quoted = value.dropFirst().prefix { $0 != "\"" }
        return quoted.count + 1 < value.count ? quoted : nil
    }
}

/// The fields of a multipart body.
struct MultipartModel {
    private(set) var fields: [(name: Text, value: Text)] = []

    init(_ body: Text, boundary: Text) {
        let delimiter = ["-", "-"] + boundary
        var (rest, parts) = (body, 0)
        while Self.skip(to: delimiter, &rest) {
            guard let disposition = Self.disposition(&rest) else { continue }
            parts += 1
            let words = DispositionModel(disposition)
            guard parts <= 1_020, words.fileName != nil || words.name != nil else { return }
            if let fileName = words.fileName {
                if !fileName.isEmpty { _ = Self.value(before: delimiter, &rest) }
                continue
            }
            guard fields.count < 1_000 else { return }
            guard let value = Self.value(before: delimiter, &rest) else { return }
            fields.append((words.name ?? [], value))
        }
    }

    private static func line(_ rest: inout Text) -> Text? {
        guard !rest.isEmpty else { return nil }
        let line = rest.prefix { $0 != "\n" }
        let isWhole = line.endIndex < rest.endIndex
        rest = rest[(line.endIndex + (isWhole ? 1 : 0))...]
        return isWhole && line.last == "\r" ? line.dropLast() : line
    }

    private static func skip(to delimiter: [Unicode.Scalar], _ rest: inout Text) -> Bool {
        while let line = line(&rest) {
            if line.elementsEqual(delimiter) { return true }
        }
        return false
    }

    /// The first Content-Disposition of the part.
    private static func disposition(_ rest: inout Text) -> Text? {
        var headers: [(name: String, value: Text)] = []
        while let line = line(&rest), let first = line.first {
            if let colon = line.firstIndex(of: ":"), !first.isSpace {
                headers.append((line[..<colon].lowercased, line[(colon + 1)...]))
            } else if !headers.isEmpty {
                headers[headers.count - 1].value += line
            }
        }
        return headers.first { $0.name == "content-disposition" }?.value
    }

    /// Up to the line end before the next delimiter.
    private static func value(before delimiter: [Unicode.Scalar], _ rest: inout Text) -> Text? {
        var (start, search) = (rest, rest)
        rest = []
        while let lineFeed = search.firstIndex(of: "\n") {
            search = search[(lineFeed + 1)...]
            guard search.starts(with: delimiter) else { continue }
            rest = search
            start = start[..<lineFeed]
            return start.last == "\r" ? start.dropLast() : start
        }
        return nil
    }
}

/// The name and the file name in a Content-Disposition.
struct DispositionModel {
    private(set) var name, fileName: Text?

    init(_ text: Text) {
        var rest = text
        while !rest.isEmpty {
            var pair = Self.word(until: ";", &rest)
            guard pair.contains("=") else { continue }
            pair = pair.drop(while: \.isSpace)
            let hasValue: Bool
            let key: Text
            (key, hasValue) = Self.key(&pair)
            guard hasValue else { continue }
            if key.lowercased == "name" { name = Self.unquoted(pair) }
            if key.lowercased == "filename" { fileName = Self.unquoted(pair) }
        }
    }

    private static func key(_ pair: inout Text) -> (key: Text, hasValue: Bool) {
        let count = pair.count
        let key = word(until: "=", &pair)
        return (key, key.count < count)
    }

    /// What lies before a separator that is in no quotes; skips all separators that follow it.
    private static func word(until separator: Unicode.Scalar, _ rest: inout Text) -> Text {
        let whole = rest
        while let quote = rest.first, quote != separator {
            rest.removeFirst()
            guard quote == "\"" || quote == "'" else { continue }
            while let next = rest.popFirst(), next != quote {
                if next == "\\", rest.first == quote { rest.removeFirst() }
            }
        }
        let word = whole[..<rest.startIndex]
        rest = rest.drop { $0 == separator }
        return word
    }

    private static func unquoted(_ text: Text) -> Text {
        var rest = text.drop(while: \.isSpace)
        guard let first = rest.first else { return [] }
        let quote = first == "\"" || first == "'" ? first : nil
        if quote != nil { rest.removeFirst() } else { rest = rest.prefix { !$0.isSpace } }
        var value: Text = []
        while let next = rest.popFirst(), next != quote {
            if next == "\\", let escaped = rest.first, escaped == "\\" || escaped == quote {
                value.append(rest.removeFirst())
            } else {
                value.append(next)
            }
        }
        return value
    }
}

extension Unicode.Scalar {
    /// C's `isspace`.
    var isSpace: Bool { self == " " || (0x09...0x0d).contains(value) }
}
