import HTTP
import TestSupport

extension FuzzTarget {
    /// The reader of requests: what comes out is what the model reads, wherever the input was cut into pieces.
    static let requests = FuzzTarget(
        "requests",
        words: [
            "\r\n", "\r\n\r\n", "\r", "\n", " ", "\t", ":", ",", ";", "\0", "\u{ff}", "0\r\n\r\n", "f\r\n", "1;a=b\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST /t HTTP/1.1\r\n", "HTTP/1.0", "HTTP/2.0", "OPTIONS * ",
            "CONNECT ",
            "http://b:1/", "https://[::1]", "?a=b", "%2e", "Host: b\r\n", "Content-Length: 5\r\n", "Content-Length: ",
            "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: gzip, chunked\r\n", "Expect: 100-continue\r\n",
            "Connection: close\r\n", "Connection: keep-alive, x\r\n", "Content-Type: text/plain\r\n",
            "X-Forwarded-For: 192.0.2.1\r\n", "X-Forwarded-Proto: https\r\n", "Forwarded: for=a\r\n",
            "Authorization: Bearer x\r\n", "If-Match: \"a\"\r\n", "18446744073709551616", "-1", "+1", "0x1",
        ]
    ) { input in
        let limits = RequestLimits(requestLine: 128, head: 512, fieldCount: 10, body: 256)
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
                head.fields.forwarding.addresses(in: bytes).map(text),
                head.fields.forwarding.protos(in: bytes).map(text),
                head.fields.forwarding.elements(in: bytes).map(text),
            ],
            matches: head.values(of: .ifMatch, in: bytes).map(text), body: text(request.body)
        )
    }
}
