internal import FoundationEssentials
internal import Glibc
internal import HTTP

/// What is answered to those who run the server.
struct AdministrationAnswer: Sendable {
    var status = Status.ok
    var mediaType = "application/json"
    var body: [UInt8]
    /// Further lines of the head.
    var fields: [String] = []

    /// JSON and a line end.
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

    /// Its bytes, dated now.
    ///
    /// - Parameters:
    ///   - omitsBody: For HEAD.
    ///   - closes: The connection is closed afterwards (RFC 9112, section 9.6).
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
