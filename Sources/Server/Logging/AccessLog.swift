internal import HTTP
internal import Settings

/// Writes one line per request to the access log.
///
/// Any thread. Text that clients choose freely is not logged: a path or method that the server does not know appears as `-`.
struct AccessLog: Sendable {
    struct Entry {
        let client: String
        let method: Method
        /// Nil for a path that the server does not know.
        let path: String?
        let minorVersion: UInt8
        /// Nil when request ids are turned off.
        let requestID: String?
        // Set when the request is answered:
        var status: UInt16 = 0
        /// The length of the answer's body.
        var bytes = 0
        /// The time from the request's last byte to the answer.
        var microseconds: UInt64 = 0
        var unixTime: Int64 = 0
    }

    private let format: AccessLogFormat
    private let writer: LineWriter

    /// Nil for `off`.
    init?(_ format: AccessLogFormat, to writer: LineWriter) {
        guard format != .off else { return nil }
        self.format = format
        self.writer = writer
    }

    func write(_ entry: Entry) {
        writer.append(Array(text(entry).utf8))
    }

    // MARK: - Format

    private func text(_ entry: Entry) -> String {
        let method = entry.method.name.map { "\($0)" } ?? "-"
        let path = entry.path ?? "-"
        switch format {
        case .json:
            return """
                {"time":"\(LogTime.text(entry.unixTime))","client":"\(entry.client)","method":"\(method)",\
                "path":"\(path)","protocol":"HTTP/1.\(entry.minorVersion)","status":\(entry.status),\
                "bytes":\(entry.bytes),"microseconds":\(entry.microseconds)\
                \(entry.requestID.map { #","request_id":"\#($0)""# } ?? "")}\n
                """
        case .combined, .off:
            return """
                \(entry.client) - - [\(Self.commonTime(entry.unixTime))] "\(method) \(path) \
                HTTP/1.\(entry.minorVersion)" \(entry.status) \(entry.bytes) "-" "-" \(entry.microseconds)\
                \(entry.requestID.map { " " + $0 } ?? "")\n
                """
        }
    }

    /// A time in the common log format: `21/Nov/2026:02:03:04 +0000`.
    private static func commonTime(_ unixTime: Int64) -> String {
        let date = HTTPDate.date(daysSince1970: Int(unixTime / 86_400))
        let day = "\(HTTPDate.twoDigits(Int64(date.day)))/\(HTTPDate.months[date.month - 1])/\(date.year)"
        return "\(day):\(LogTime.clock(unixTime)) +0000"
    }
}
