import HTTP
import TestSupport

extension FuzzTarget {
    /// The reader of requests: what comes out is what the model reads, wherever the input was cut into pieces.
    static let requests = FuzzTarget(
        "requests",
        words: [
            "\r\n", "\r\n\r\n", "\r", "\n", " ", "\t", ":", ",", ";", "\0", "\u{ff}", "0\r\n\r\n", "f\r\n", "1;a=b\r\n",
            "1 ;a\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST /t HTTP/1.1\r\n", "HTTP/1.0", "HTTP/2.0", "OPTIONS * ",
            "CONNECT ",
            "http://b:1/", "https://[::1]", "?a=b", "%2e", "Host: b\r\n", "Content-Length: 5\r\n", "Content-Length: ",
            "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: gzip, chunked\r\n", "Expect: 100-continue\r\n",
            "Connection: close\r\n", "Connection: keep-alive, x\r\n", "Content-Type: text/plain\r\n",
            "X-Forwarded-For: 192.0.2.1\r\n", "X-Forwarded-Proto: https\r\n", "Forwarded: for=a\r\n",
            "Authorization: Bearer x\r\n", "If-Match: \"a\"\r\n", "18446744073709551616", "-1", "+1", "0x1",
        ]
    ) { input in
        let limits = RequestLimits(head: 512, fieldCount: 10, body: 256)
        let whole = Reading(of: input, limits: limits)
        let model = RequestModel(input, limits: limits)
        try compare(whole.requests, model.requests, "the requests")
        try compare(whole.end.isRefused, model.isRefused, "whether the last request is refused")
        var random = SeededGenerator(seed: input.choice)
        let cuts: [[Int]] = [
            // Most cuts in one run, and then any.
            input.map { _ in 1 }, input.map { _ in Int.random(in: 1...24, using: &random) },
            [Int.random(in: 0...input.count, using: &random)],
        ]
        for pieces in cuts {
            let cut = Reading(of: input, pieces: pieces, limits: limits, releasesRoom: random.next().isMultiple(of: 2))
            try compare(cut, whole, "what was read in pieces \(pieces.prefix(8))")
        }
    }
}

/// What the reader has made of an input.
private struct Reading: Equatable, CustomStringConvertible {
    enum End: Equatable {
        case incomplete
        case refused(Refusal)

        var isRefused: Bool { self != .incomplete }
    }

    private(set) var requests: [RequestModel.Request] = []
    private(set) var end = End.incomplete

    var description: String { "\(requests), \(end)" }

    /// - Parameter pieces: How many bytes arrive together; the rest arrives at once.
    init(of input: [UInt8], pieces: [Int] = [], limits: RequestLimits, releasesRoom: Bool = false) {
        var reader = RequestReader(limits: limits)
        var (rest, sizes) = (input[...], pieces[...])
        while true {
            switch reader.next() {
            case .request:
                requests.append(Self.described(reader.request, reader.requestBytes))
                reader.finishRequest()
            // Whether leave to send the body is asked for depends on whether it is there already.
            case .sendContinue: break
            case .refused(let refusal):
                end = .refused(refusal)
                return
            case .needsMore:
                guard !rest.isEmpty else { return }
                let size = max(sizes.popFirst() ?? rest.count, 1)
                if releasesRoom { reader.releaseRoom() }
                _ = reader.makeRoom()
                reader.bytes.append(contentsOf: rest.prefix(size))
                rest = rest.dropFirst(size)
            }
        }
    }

    private static func described(_ request: HTTP.Request, _ bytes: Span<UInt8>) -> RequestModel.Request {
        let head = request.head
        func text(_ range: ByteRange) -> String { [UInt8](range, in: bytes).text.string }
        return RequestModel.Request(
            method: text(head.methodName), path: text(head.path), query: text(head.query),
            authority: text(head.authority), minorVersion: Int(head.minorVersion), keepsAlive: head.keepsAlive,
            contentType: head.fields.contentType.map(text),
            authorization: head.fields.authorization.only.map(text),
            forwarded: [
                head.forwardedAddresses(in: bytes).map(text),
                head.forwardedProtos(in: bytes).map(text),
            ],
            matches: head.values(of: .ifMatch, in: bytes).map(text), body: text(request.body)
        )
    }
}

/// The requests of an input as RFC 9112 and the refusals in Sources/HTTP/Request/Refusal.swift have it, with all of the input at
/// hand and without a thought for speed.
struct RequestModel {
    /// Texts have one character for each byte.
    struct Request: Equatable, CustomStringConvertible {
        var method, path, query, authority: String
        var minorVersion: Int
        var keepsAlive: Bool
        var contentType: String?
        /// Nil without one, or with several.
        var authorization: String?
        /// The values of X-Forwarded-For and X-Forwarded-Proto.
        var forwarded: [[String]]
        /// The values of If-Match.
        var matches: [String]
        var body: String

        var description: String {
            """
            [\(method) \(path) ? \(query) of \(authority), 1.\(minorVersion), \(keepsAlive), \(contentType ?? "-"), \
            \(authorization ?? "-"), \(forwarded), \(matches), \(body.debugDescription)]
            """
        }
    }

    private(set) var requests: [Request] = []
    /// Whether what follows the requests is refused; otherwise it is only incomplete.
    private(set) var isRefused = false

    /// More input is needed.
    private struct Incomplete: Error {}
    /// The input is no request.
    private struct Refused: Error {}

    private let limits: RequestLimits
    /// What has not been read yet.
    private var rest: Text

    init(_ input: [UInt8], limits: RequestLimits) {
        self.limits = limits
        rest = input.text
        do {
            while !rest.isEmpty { requests.append(try readRequest()) }
        } catch {
            isRefused = error is Refused
        }
    }

    private mutating func readRequest() throws -> Request {
        try skipEmptyLine()
        let head = rest
        let words = try line(atMost: limits.head - 1)
            .split(separator: " ", omittingEmptySubsequences: false)
        guard words.count == 3, words[0].isToken, !words[1].isEmpty, words[2].count == 8,
            words[2].hasPrefix("HTTP/1."), words[2].suffix(1).isDigits, words[0].string != "CONNECT",
            words[1].allSatisfy({ $0.value > 0x20 && $0.value < 0x7f && $0 != "#" })
        else { throw Refused() }
        let target = try self.target(words[1], method: words[0].string)
        let minorVersion = words[2].hasSuffix("0") ? 0 : 1
        let fields = try readFields(head)
        let lists = Dictionary(grouping: fields, by: \.name).mapValues { $0.map(\.value) }
        func only(_ name: String) throws -> Text? {
            guard lists[name, default: []].count < 2 else { throw Refused() }
            return lists[name]?.first
        }
        let host = try only("host")
        guard host != nil || minorVersion == 0 else { throw Refused() }
        let connections = lists["connection", default: []]
        let options = connections.flatMap(\.elements).map(\.lowercased)
        let (length, coding) = (try only("content-length"), try only("transfer-encoding"))
        guard length == nil || coding == nil else { throw Refused() }
        var request = Request(
            method: words[0].string, path: target.path.string, query: target.query.string,
            authority: (target.authority ?? host ?? []).string,
            minorVersion: minorVersion,
            keepsAlive: !options.contains("close") && !connections.contains { $0.count > 128 }
                && (minorVersion > 0 || options.contains("keep-alive")),
            contentType: try only("content-type")?.string, authorization: nil,
            forwarded: ["x-forwarded-for", "x-forwarded-proto"].map {
                lists[$0, default: []].map(\.string)
            },
            matches: lists["if-match", default: []].map(\.string), body: ""
        )
        let authorizations = lists["authorization", default: []]
        request.authorization = authorizations.count == 1 ? authorizations[0].string : nil
        if coding != nil { request.body = try readChunks().string }
        if let length { request.body = try readBody(length).string }
        return request
    }

    /// Skips one empty line before a request (RFC 9112, section 2.2).
    private mutating func skipEmptyLine() throws {
        guard rest.first == "\r" else { return }
        guard let second = rest.dropFirst().first else { throw Incomplete() }
        guard second == "\n" else { throw Refused() }
        rest = rest.dropFirst(2)
        if rest.isEmpty { throw Incomplete() }
    }

    /// The next line without CR LF.
    ///
    /// - Parameter limit: The most characters before the LF, whether that has arrived or not.
    private mutating func line(atMost limit: Int) throws -> Text {
        let line = rest.prefix { $0 != "\n" }
        let end = line.endIndex
        guard line.count <= limit else { throw Refused() }
        guard end < rest.endIndex else { throw Incomplete() }
        guard line.last == "\r" else { throw Refused() }
        rest = rest[(end + 1)...]
        return line.dropLast()
    }

    // MARK: - Head

    private func target(_ text: Text, method: String) throws -> (authority: Text?, path: Text, query: Text) {
        if text.elementsEqual(["*"]), method == "OPTIONS" { return (nil, text, []) }
        var (authority, rest): (Text?, Text) = (nil, text)
        if !text.hasPrefix("/") {
            guard let scheme = ["http://", "https://"].first(where: { text.lowercased.hasPrefix($0) }) else {
                throw Refused()
            }
            let name = text.dropFirst(scheme.count).prefix { $0 != "/" && $0 != "?" }
            guard Self.isAuthority(name) else { throw Refused() }
            authority = name
            rest = text.dropFirst(scheme.count + name.count)
        }
        let path = rest.prefix { $0 != "?" }
        return (authority, path, rest.dropFirst(path.count + 1))
    }

    /// RFC 3986, section 3.2, without user information.
    private static func isAuthority(_ text: Text) -> Bool {
        guard text.count <= 261 else { return false }
        var host = text
        if let colon = text.lastIndex(of: ":"), text[colon...].dropFirst().allSatisfy(\.isDigit),
            !text[..<colon].hasPrefix("[") || text[..<colon].hasSuffix("]")
        {
            guard text[colon...].count <= 6 else { return false }
            host = text[..<colon]
        }
        if host.hasPrefix("[") {
            let address = host.dropFirst().dropLast()
            return host.hasSuffix("]") && address.count >= 2
                && address.allSatisfy { $0.isHexadecimal || $0 == ":" || $0 == "." }
        }
        let parts = host.split(separator: "%", omittingEmptySubsequences: false)
        let escapesAreWhole = parts.dropFirst().allSatisfy {
            $0.count >= 2 && $0.prefix(2).allSatisfy(\.isHexadecimal)
        }
        return !host.isEmpty && escapesAreWhole
            && host.allSatisfy { $0.isLetterOrDigit || "-._~!$&'()*+,;=%".unicodeScalars.contains($0) }
    }

    /// - Parameter head: The input from the request's first byte.
    private mutating func readFields(_ head: Text) throws -> [(name: String, value: Text)] {
        var fields: [(name: String, value: Text)] = []
        while true {
            let used = head.count - rest.count
            let line = try line(atMost: limits.head - used - 1)
            if line.isEmpty { return fields }
            guard fields.count < limits.fieldCount, let field = Self.field(line) else { throw Refused() }
            fields.append(field)
            // Some fields are refused as soon as they come, whatever follows.
            let values = fields.filter { $0.name == field.name }.map(\.value)
            switch field.name {
            case "host":
                guard values.count == 1, field.value.isEmpty || Self.isAuthority(field.value) else { throw Refused() }
            case "content-length":
                guard values.count == 1, field.value.isDigits else { throw Refused() }
            case "content-type": guard values.count == 1 else { throw Refused() }
            case "transfer-encoding":
                let isOld = head.prefix { $0 != "\r" }.hasSuffix("0")
                guard values.count == 1, !isOld, field.value.count <= 128,
                    field.value.elements.map(\.lowercased) == ["chunked"]
                else {
                    throw Refused()
                }
            // An empty list expects nothing (RFC 9110, section 10.1.1).
            case "expect":
                guard field.value.count <= 128,
                    field.value.elements.allSatisfy({ $0.isEmpty || $0.lowercased == "100-continue" })
                else {
                    throw Refused()
                }
            default: break
            }
        }
    }

    /// RFC 9112, section 5; nil if the line is no field.
    ///
    /// The name is in lower case.
    private static func field(_ line: Text) -> (name: String, value: Text)? {
        guard let colon = line.firstIndex(of: ":"), line[..<colon].isToken else { return nil }
        let value = line[(colon + 1)...]
        guard value.allSatisfy(\.isInFieldValue) else { return nil }
        return (line[..<colon].lowercased, value.trimmed)
    }

    // MARK: - Body

    private mutating func readBody(_ digits: Text) throws -> Text {
        let significant = digits.drop { $0 == "0" }
        guard significant.count < 10, let length = Int("0" + significant.string), length <= limits.body else {
            throw Refused()
        }
        return try take(length)
    }

    private mutating func take(_ count: Int) throws -> Text {
        guard rest.count >= count else { throw Incomplete() }
        defer { rest = rest.dropFirst(count) }
        return rest.prefix(count)
    }

    /// RFC 9112, section 7.1.
    private mutating func readChunks() throws -> Text {
        var (body, extensions): (Text, Int) = ([], 0)
        while true {
            let line = try line(atMost: 256)
            let digits = line.prefix(while: \.isHexadecimal)
            let rest = line.dropFirst(digits.count)
            extensions += rest.count
            guard (1...8).contains(digits.count), let size = Int(digits.string, radix: 16),
                rest.isEmpty || rest.trimmed.first == ";",
                rest.allSatisfy(\.isInFieldValue), extensions <= limits.head, size <= limits.body - body.count
            else { throw Refused() }
            if size == 0 { break }
            body += try take(size)
            guard try take(2).elementsEqual(["\r", "\n"]) else { throw Refused() }
        }
        var trailers = 0
        while true {
            let line = try line(atMost: limits.head - trailers)
            if line.isEmpty { return body }
            trailers += line.count + 2
            guard Self.field(line) != nil else { throw Refused() }
        }
    }
}
