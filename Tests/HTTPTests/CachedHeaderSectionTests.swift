import TestSupport
import Testing

@testable import HTTP

/// One connection's requests, whose header lines are often those of the one before.
@Suite struct CachedHeaderSectionTests {
    /// Header lines with the empty one, and the body that they announce.
    private static let endings = [
        "Host: a.example\r\n\r\n",
        "Host: a.example\r\nX-Forwarded-Proto: https\r\nX-Forwarded-For: 192.0.2.1\r\nX-Request-Id: one\r\n\r\n",
        "X-Forwarded-Proto: http\r\nForwarded: for=192.0.2.2\r\nX-Forwarded-Proto: https\r\nHost:\r\n\r\n",
        "X-Forwarded-For:\r\nForwarded: for=a\r\nX-Forwarded-For: 192.0.2.1\r\nHost:\r\nForwarded:\r\n\r\n",
        "X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http\r\nHost:\r\nX-Forwarded-Proto:\r\nForwarded:\r\n\r\n",
        "Host: a.example\r\nAuthorization: Bearer tcs_1\r\nIf-Match: \"1\"\r\n\r\n",
        "Authorization: Bearer tcs_2\r\nHost: a.example\r\nAuthorization: Bearer tcs_3\r\n\r\n",
        "Host: a.example\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nbody",
        "Host: a.example\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nelse",
        "Host: a.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "Host: a.example\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
        "Connection: keep-alive\r\nHost: b.example:80\r\n\r\n",
        "Host: b.example:80\r\nConnection: close\r\n\r\n",
        // Refused, each by another rule.
        "\r\n",
        "Host: a.example\r\nContent-Length: 99\r\n\r\n",
        "Host: a.example\r\nHost: a.example\r\n\r\n",
    ]
    /// The first three have the same length: the fields after them lie at the same place, but do not always mean the same.
    private static let lines = [
        "GET /token?unique_id=a HTTP/1.1\r\n", "GET /token?unique_id=a HTTP/1.0\r\n",
        "GET http://c.example/t HTTP/1.1\r\n", "GET /token?unique_id=longer HTTP/1.1\r\n", "POST / HTTP/1.1\r\n",
    ]
    private static let limits = RequestLimits(head: 200, body: 50)

    /// What a reader yields next.
    private enum Reading: Equatable {
        case request(String)
        case refused(Refusal)
        case needsMore
    }

    private static func step(_ reader: inout RequestReader) -> Reading {
        while true {
            switch reader.next() {
            case .request: return .request(describe(reader.request.head, reader.request.body, in: reader.requestBytes))
            case .sendContinue: break
            case .needsMore: return .needsMore
            case .refused(let refusal): return .refused(refusal)
            }
        }
    }

    private static func describe(_ head: RequestHead, _ body: ByteRange, in bytes: Span<UInt8>) -> String {
        let forwarding = head.fields.forwarding
        let ranges = [
            head.methodName, head.target, head.path, head.query, head.authority, head.fields.contentType ?? .empty,
            forwarding.requestID, body,
        ]
        let lines = [
            head.forwardedProtos(in: bytes), head.forwardedAddresses(in: bytes),
            head.fields.authorization.isEmpty ? [] : head.values(of: .authorization, in: bytes),
            head.values(of: .ifMatch, in: bytes),
        ]
        var texts: [[String]] = []
        for ranges in [ranges] + lines { texts.append(ranges.map { bytes.text($0) }) }
        return """
            \(texts) \(head.minorVersion) \(head.fields.contentType == nil) \(head.framing) \(forwarding.isPresent) \(head.fields.hasPreconditions) \
            \(head.expectsContinue) \(head.keepsAlive) \(head.length)
            """
    }

    private static func alone(_ request: [UInt8], limits: RequestLimits) -> Reading {
        var reader = RequestReader(limits: limits)
        reader.bytes = request
        return step(&reader)
    }

    @Test(arguments: 0..<400 as Range<UInt64>)
    func `a request is read behind others as it is alone`(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        var limits = Self.limits
        var reader = RequestReader(limits: limits)
        var ending = Self.endings[0]
        // Requests that have been sent and are not read yet.
        var sent: [[UInt8]] = []
        for _ in 0..<60 {
            if sent.isEmpty, Int.random(in: 0..<9, using: &random) == 0 {
                limits.head = Int.random(in: 40...200, using: &random)
                limits.fieldCount = Int.random(in: 1...6, using: &random)
                reader.limits = limits
            }
            if Int.random(in: 0..<4, using: &random) == 0 {
                ending = try #require(Self.endings.randomElement(using: &random))
            }
            let line = try #require(Self.lines.randomElement(using: &random))
            let request = Array((line + ending).utf8)
            sent.append(request)
            var rest = request[...]
            while !rest.isEmpty {
                let piece = rest.prefix(Bool.random(using: &random) ? .max : Int.random(in: 1...90, using: &random))
                rest = rest.dropFirst(piece.count)
                _ = reader.makeRoom()
                reader.bytes.append(contentsOf: piece)
                // Some wait for those behind them.
                if Int.random(in: 0..<3, using: &random) == 0 { continue }
                while let first = sent.first {
                    let found = Self.step(&reader)
                    if found == .needsMore { break }
                    #expect(found == Self.alone(first, limits: limits))
                    // A refusal ends a connection.
                    guard case .request = found else { return }
                    reader.finishRequest()
                    sent.removeFirst()
                }
            }
        }
    }

    /// What a reader keeps behind some requests.
    private func kept(_ fields: [String]) -> [CachedHeaderSection?] {
        var reader = RequestReader(limits: RequestLimits())
        return fields.map { fields in
            reader.bytes.append(contentsOf: Array("GET / HTTP/1.1\r\nHost: a\r\n\(fields)\r\n".utf8))
            guard case .request = reader.next() else {
                Issue.record("it was not read")
                return nil
            }
            reader.finishRequest()
            return reader.cachedSection
        }
    }

    @Test
    func `lines are kept from the second request on, and for as long as they are repeated`() throws {
        let kept = kept(["", "", "", "A: b\r\n", "A: b\r\n"])
        #expect(kept[0] == nil)
        let (first, second) = (try #require(kept[1]), try #require(kept[3]))
        #expect(kept[2] === first && second !== first && kept[4] === second)
    }

    @Test
    func `lines that differ again and again are kept no more, nor are long ones`() {
        let differing = kept((0..<12).map { "A: \($0)\r\n" } + ["", ""])
        #expect(
            differing.map { $0 != nil } == [false] + Array(repeating: true, count: 7)
                + Array(repeating: false, count: 6))
        let filler = { (count: Int) in "A: " + String(repeating: "a", count: count) + "\r\n" }
        // With the line of the host and the empty one.
        let rest = "Host: a\r\n".utf8.count + "A: \r\n".utf8.count + "\r\n".utf8.count
        for (length, isKept) in [(1_024, true), (1_025, false)] {
            #expect((kept([filler(length - rest), filler(length - rest)])[1] != nil) == isKept)
        }
    }
}
