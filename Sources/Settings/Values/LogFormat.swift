/// What a line of the logs looks like.
package enum LogFormat: String, Sendable, CaseIterable {
    /// For people: the server's log as text, the access log as `access_log` says.
    case text
    /// One JSON object a line, in the access log as well.
    case json
}

/// What the access log looks like.
package enum AccessLogFormat: String, Sendable, CaseIterable {
    case off
    /// Apache's and nginx's `combined`, with the microseconds at the end.
    case combined
    /// One JSON object a line.
    case json
}
