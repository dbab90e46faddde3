/// The format of the server's log.
package enum LogFormat: String, Sendable, CaseIterable {
    /// Text for people; the access log has the format of `access_log`.
    case text
    /// One JSON object per line, in the access log as well.
    case json
}

/// The format of the access log.
package enum AccessLogFormat: String, Sendable, CaseIterable {
    case off
    /// The format `combined` of Apache and nginx, with the microseconds at the end.
    case combined
    /// One JSON object per line.
    case json
}
