#if PostgreSQL
internal import System

/// Tells which of the registered servers run, by whether they go on writing their rows.
///
/// No clocks of different machines are compared: a row that has changed since it was last looked at is that of a running
/// server, whatever time it names.
struct ServerWatch: Sendable {
    private var sightings: [[UInt8]: (seenAt: Int64, since: MonotonicTime)] = [:]
    private let silence: Nanoseconds

    /// - Parameter silence: How long a server may leave its row unchanged; one that is seen for the first time has as long to
    ///   show that it runs, and counts meanwhile.
    init(silence: Duration = .seconds(RegisteredServer.silence)) {
        self.silence = Nanoseconds(silence)
    }

    /// Takes notice of all rows as they are now.
    mutating func look(at servers: [RegisteredServer], _ now: MonotonicTime) {
        var present: [[UInt8]: (seenAt: Int64, since: MonotonicTime)] = [:]
        for server in servers {
            let known = sightings[server.id]
            present[server.id] = known?.seenAt == server.seenAt ? known : (server.seenAt, now)
        }
        sightings = present
    }

    /// Whether a server runs.
    func isRunning(_ server: RegisteredServer, _ now: MonotonicTime) -> Bool {
        (unchanged(server, now)?.count ?? 0) < silence.count
    }

    /// Since when a row has not been changed; nil if it was not looked at.
    func unchanged(_ server: RegisteredServer, _ now: MonotonicTime) -> Nanoseconds? {
        sightings[server.id].map { now - $0.since }
    }
}
#endif
