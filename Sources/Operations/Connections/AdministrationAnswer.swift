internal import FoundationEssentials
internal import Glibc
internal import HTTP

/// An HTTP answer of the administration.
struct AdministrationAnswer: Sendable {
    var status = Status.ok
    var mediaType = "application/json"
    var body: [UInt8]
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
            "Content-Length: \(body.count)",
        ]
        lines += fields
        if closes { lines.append("Connection: close") }
        return Array((lines.joined(separator: "\r\n") + "\r\n\r\n").utf8) + (omitsBody ? [] : body)
    }
}
