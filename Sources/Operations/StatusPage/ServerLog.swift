internal import Server

/// The last lines of the log of level warning and up, as `/log` returns them.
struct ServerLog: Encodable, Sendable {
    /// The oldest first.
    let lines: [Line]

    struct Line: Encodable, Sendable {
        /// 1 for the first one since the start.
        let number: UInt64
        /// In seconds since 1970.
        let time: Double
        let level: String
        let text: String
    }

    init(of server: Server) {
        lines = server.recentLog.lines.map {
            Line(number: $0.number, time: Double($0.unixMilliseconds) / 1_000, level: $0.level, text: $0.text)
        }
    }
}
