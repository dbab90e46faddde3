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
