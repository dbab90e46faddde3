/// The format of the server's log.
package enum LogFormat: String, Sendable, CaseIterable {
    /// Text for people; the access log has the format of `access_log`.
    case text
    /// One JSON object per line, in the access log as well.
    case json
}

/// All failures and every Nth other request.
package struct AccessLogSample: Hashable, Sendable, CustomStringConvertible {
    /// 1 for all of them.
    package let interval: Int
    package static let all = AccessLogSample(interval: 1)
    private static let limit = 1_000_000

    private init(interval: Int) {
        self.interval = interval
    }

    /// Reads a text such as `1/100`.
    package init?(_ text: String) {
        let numbers = text.split(separator: "/", omittingEmptySubsequences: false)
        guard numbers.count == 2, numbers[0] == "1", let interval = Int(numbers[1]), "\(interval)" == numbers[1],
            1...Self.limit ~= interval
        else { return nil }
        self.init(interval: interval)
    }

    package var description: String { "1/\(interval)" }
}

/// The format of the access log.
package enum AccessLogFormat: String, Sendable, CaseIterable {
    case off
    /// The format `combined` of Apache and nginx, with the microseconds at the end.
    case combined
    /// One JSON object per line.
    case json
}
