/// Makes the requests of a seed's clients.
struct RequestMaker {
    let random: Randomness
    let ledger: Ledger
    let choices: Choices

    func make() -> ClientRequest {
        switch random.below(40) {
        case 0..<15: get()
        case 15..<31: post()
        case 31, 32: finished(ClientRequest(purpose: .head), "HEAD /token?unique_id=a")
        case 33: finished(ClientRequest(purpose: .error(code: 50003)), "PUT /token")
        case 34: finished(ClientRequest(purpose: .error(code: 30001)), "GET /token?other=1")
        case 35: finished(ClientRequest(purpose: .httpError(status: 404)), "GET /nothing")
        case 36, 37: choices.hasMalformedRequests ? malformed() : get()
        default: post(isChunked: true)
        }
    }

    private func get() -> ClientRequest {
        let id = random.below(choices.ids)
        // Encoded, an id is not looked up in place.
        let text = random.happens(oneIn: 3) ? "%69d\(id)" : "id\(id)"
        return finished(
            ClientRequest(purpose: .get(id: id)), "GET \(random.among(["/token", "/token.php"]))?unique_id=\(text)")
    }

    private func post(isChunked: Bool = false) -> ClientRequest {
        let id = random.below(choices.ids)
        var length = random.below(60)
        if choices.hasLongTokens && random.happens(oneIn: 5) { length = random.among([3_000, 17_000, 33_000]) }
        let write = ledger.addWrite(id: id, length: length)
        var request = ClientRequest(purpose: .post(write: write))
        request.expectsContinue = random.happens(oneIn: 5)
        request.waitsForContinue = request.expectsContinue && random.happens(oneIn: 2)
        var body = Array("unique_id=id\(id)&token_info=".utf8) + ledger.info(ofWrite: write)
        var fields = "\r\nContent-Type: application/x-www-form-urlencoded"
        if isChunked {
            fields += "\r\nTransfer-Encoding: chunked"
            body = chunked(body)
        } else {
            fields += "\r\nContent-Length: \(body.count)"
        }
        if request.expectsContinue { fields += "\r\nExpect: 100-continue" }
        return finished(request, "POST /token", fields, body, mayBeOld: !isChunked && !request.expectsContinue)
    }

    private func chunked(_ body: [UInt8]) -> [UInt8] {
        let cut = 1 + random.below(body.count - 1)
        return [body[..<cut], body[cut...]].flatMap { part in
            Array("\(String(part.count, radix: 16))\r\n".utf8) + part + Array("\r\n".utf8)
        } + Array("0\r\n\r\n".utf8)
    }

    private func malformed() -> ClientRequest {
        let (status, text) = random.among([
            (400, "GET / HTTP/1.1\n"), (400, "GET /token HTTP/1.1\r\n\r\n"), (505, "GET / HTTP/3.0\r\n"),
            (400, "GET  / HTTP/1.1\r\n"), (405, "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"),
            (413, "POST /token HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n"),
            (417, "POST /token HTTP/1.1\r\nHost: a\r\nExpect: tea\r\nContent-Length: 1\r\n\r\na"),
            (400, "POST /token HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"),
        ])
        var request = ClientRequest(purpose: .malformed(status: status))
        // The client goes on sending, as it does not know yet that it is refused.
        request.bytes = Array(text.utf8) + [UInt8](repeating: UInt8(ascii: "x"), count: random.below(600))
        return request
    }

    private func finished(
        _ unfinished: ClientRequest, _ start: String, _ fields: String = "", _ body: [UInt8] = [], mayBeOld: Bool = true
    ) -> ClientRequest {
        var request = unfinished
        request.isOldVersion = mayBeOld && random.happens(oneIn: 12)
        let asksToClose = !request.isOldVersion && random.happens(oneIn: 8)
        let asksToStay = request.isOldVersion && random.happens(oneIn: 2)
        request.closes = asksToClose || (request.isOldVersion && !asksToStay)
        var head = "\(start) HTTP/1.\(request.isOldVersion ? 0 : 1)\r\nHost: a\(fields)"
        if asksToClose { head += "\r\nConnection: close" }
        if asksToStay { head += "\r\nConnection: keep-alive" }
        request.bytes = Array("\(head)\r\n\r\n".utf8)
        request.headLength = request.bytes.count
        request.bytes += body
        return request
    }
}

/// A request of a client: its bytes, and which answer it must get.
struct ClientRequest {
    enum Purpose {
        /// A GET of an id's token.
        case get(id: Int)
        /// A POST, by the number of the write in the ledger.
        case post(write: Int)
        /// Gets status 200 without a body.
        case head
        /// Gets the contract's error with this code.
        case error(code: Int)
        /// Gets an error of HTTP, and the connection stays open.
        case httpError(status: Int)
        /// Cannot be read: gets an error of HTTP, and the connection is closed.
        case malformed(status: Int)
    }

    var purpose: Purpose
    var bytes: [UInt8] = []
    /// Where the body begins.
    var headLength = 0
    /// Whether the client asks to close the connection after the answer.
    var closes = false
    var isOldVersion = false
    var expectsContinue = false
    /// Whether it waits for `100 Continue` before it sends the body.
    var waitsForContinue = false
    /// The end of the request among all bytes that the client sends.
    var end = 0
}

/// What a client's connection begins with where the listener requires a PROXY header.
struct ProxyHeader {
    let bytes: [UInt8]
    /// Whether the server must refuse the connection because of these bytes.
    let isMalformed: Bool

    private static let signature: [UInt8] = [0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51, 0x55, 0x49, 0x54, 0x0a]

    /// - Parameter mayBeMalformed: Whether the proxy may send something else.
    init(_ random: Randomness, mayBeMalformed: Bool) {
        isMalformed = mayBeMalformed && random.happens(oneIn: 6)
        if isMalformed {
            bytes = random.among([
                // The request itself follows.
                [], Array("PROXY TCP4 a b 1 2\r\n".utf8), Array("PROXY TCP4 127.0.0.1 127.0.0.1 1 2\n".utf8),
                Array("PROXY UNKNOWN ".utf8) + [UInt8](repeating: UInt8(ascii: "x"), count: 200),
                Self.block(version: 1, command: 1, family: 0x11, [UInt8](repeating: 0, count: 12)),
                Self.block(version: 2, command: 1, family: 0x11, [127, 0, 0, 1]),
            ])
            return
        }
        let extensions = [UInt8](repeating: 0xee, count: random.among([0, 0, 3, 700, 4_000]))
        bytes = random.among([
            Array("PROXY TCP4 127.0.0.1 192.0.2.1 56324 443\r\n".utf8),
            Array("PROXY TCP6 ::1 2001:db8::1 1 65535\r\n".utf8), Array("PROXY UNKNOWN\r\n".utf8),
            Self.block(version: 2, command: 0, family: 0, []),
            Self.block(version: 2, command: 1, family: 0x11, [127, 0, 0, 1, 192, 0, 2, 1, 0, 1, 1, 187] + extensions),
        ])
    }

    private static func block(version: UInt8, command: UInt8, family: UInt8, _ rest: [UInt8]) -> [UInt8] {
        signature + [version << 4 | command, family, UInt8(rest.count >> 8), UInt8(rest.count & 0xff)] + rest
    }
}
