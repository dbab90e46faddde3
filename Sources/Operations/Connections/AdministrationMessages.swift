import Glibc
import HTTP

/// A request to the administration, without its body.
struct AdministrationRequest {
    let method: String
    let path: String
    /// What follows the question mark; empty without one.
    let query: String
    /// With or without a port; empty when the request names no host.
    let host: String
    /// Whether the connection closes after the answer.
    let isLast: Bool
    /// Whether a page of any site has sent it.
    ///
    /// Browsers send the origin with all methods but GET and HEAD (Fetch, section 3.2), and current ones send with every
    /// request whether it comes from the same site (Fetch Metadata, section 2.3).
    let isFromPage: Bool

    init(_ head: RequestHead, in bytes: Span<UInt8>) {
        (method, path) = (bytes.text(head.methodName), bytes.text(head.path))
        (query, host) = (bytes.text(head.query), bytes.text(head.authority))
        isLast = !head.keepsAlive
        isFromPage =
            head.values(of: .fetchSite, in: bytes).contains { RequestHead.isOtherSite($0, in: bytes) }
            || !head.values(of: .origin, in: bytes).isEmpty
    }
}

/// An HTTP answer of the administration.
struct AdministrationAnswer: Sendable {
    var status = Status.ok
    var mediaType = "application/json"
    /// Nil if it follows the answer and ends with the connection (RFC 9112, section 6.3, number 8).
    var body: [UInt8]?
    /// Further header lines, such as `Allow: POST`.
    var fields: [String] = []

    /// An answer with a value as JSON, followed by a newline.
    init(_ status: Status = .ok, json value: some Encodable) {
        self.status = status
        body = ((try? OperationsJSON.encode(value)).map(Array.init) ?? []) + [UInt8(ascii: "\n")]
    }

    init(mediaType: String, text: String) {
        self.mediaType = mediaType
        body = Array(text.utf8)
    }

    /// What comes before the lines of JSON that answer a command.
    static var beginningOfLines: [UInt8] {
        var answer = AdministrationAnswer(mediaType: "application/x-ndjson", text: "")
        answer.body = nil
        return answer.encoded(closes: true)
    }

    /// An error, as `{"error": "..."}`.
    static func error(_ status: Status, _ message: String) -> AdministrationAnswer {
        AdministrationAnswer(status, json: ["error": message])
    }

    /// The bytes to send, with the current date.
    ///
    /// - Parameters:
    ///   - omitsBody: True for HEAD.
    ///   - closes: Whether the connection is closed afterwards (RFC 9112, section 9.6).
    func encoded(omitsBody: Bool = false, closes: Bool) -> [UInt8] {
        let date = HTTPDate.text(unixTime: Int64(time(nil)))
        var lines = [
            "HTTP/1.1 \(status.rawValue) \(status.reason)", "Content-Type: \(mediaType)", "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff", "Date: \(String(decoding: date, as: UTF8.self))",
        ]
        if let body { lines.append("Content-Length: \(body.count)") }
        lines += fields
        if closes { lines.append("Connection: close") }
        return Array((lines.joined(separator: "\r\n") + "\r\n\r\n").utf8) + (omitsBody ? [] : body ?? [])
    }
}
