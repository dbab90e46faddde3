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
        var fields = RequestFields()
        // Twice, as an instance is used for many requests.
        _ = fields.read(reader.request, in: reader.requestBytes, readsJSON: !readsJSON)
        let found = fields.read(reader.request, in: reader.requestBytes, readsJSON: readsJSON)
        return [found.uniqueID, found.tokenInfo]
    }
}
