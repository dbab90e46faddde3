internal import Server
internal import System
internal import TokenStore

/// Adds a server's figures to a history once a second.
struct HistorySampler: Sendable {
    let history: History
    private let server: Server
    private let version: String

    /// - Parameter version: This program's version.
    init(_ server: Server, version: String) {
        self.server = server
        self.version = version
        let figures = HistoryFigure.all(isRemote: server.store.metrics.remote != nil)
        history = History(of: figures, from: HistoryReading(of: server))
    }

    /// Runs until its task is cancelled, on one of Swift's shared threads, as it reads files.
    func run() async {
        var events = [HistoryEvent(.start, "token-cache \(version) has started")]
        // A store that fails from the start is an event. A backup that was made before the start is not.
        var before = ServerSituation(of: server)
        before.reasons = []
        while (try? await Task.sleep(for: Self.pause(at: SystemUptime.now))) != nil {
            let now = ServerSituation(of: server)
            events += now.events(since: before)
            history.add(HistoryReading(of: server), events)
            (before, events) = (now, [])
        }
    }

    /// How long to wait for the middle of the next second: from there, a reading that is a little early or late still counts for
    /// its own second.
    static func pause(at uptime: Double) -> Duration {
        .seconds(uptime.rounded(.down) + 1.5 - uptime)
    }
}
