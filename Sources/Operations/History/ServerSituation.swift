internal import Server
internal import TokenStore

/// What is compared once a second to notice events.
struct ServerSituation: Sendable {
    /// Why the server is not ready; empty if it is.
    var reasons: [String] = []
    var isStopping = false
    var reload = LastReload(successTime: 0)
    /// Nil if there was no backup.
    var backup: BackupRecord?
    /// How often another server has become the database's primary.
    var failovers: UInt64 = 0
    /// The database's primary; nil while none is known, and for a store on this machine.
    var primary: String?

    /// What has happened since an earlier situation.
    func events(since earlier: ServerSituation) -> [HistoryEvent] {
        var events: [HistoryEvent] = []
        if reload.number != earlier.reload.number {
            events.append(
                HistoryEvent(.reload, "\(reload.reason): \(reload.outcome)", isFailure: reload.wasRefused))
        }
        if let backup, backup != earlier.backup {
            events.append(
                backup.isSuccessful
                    ? HistoryEvent(.backup, "a backup has succeeded")
                    : HistoryEvent(.backup, "a backup has failed", isFailure: true))
        }
        if failovers > earlier.failovers {
            events.append(HistoryEvent(.failover, "the primary is \(primary ?? "not known")"))
        }
        if isStopping && !earlier.isStopping {
            events.append(HistoryEvent(.drain, "the server is stopping"))
        } else if reasons != earlier.reasons && !isStopping {
            events.append(
                reasons.isEmpty
                    ? HistoryEvent(.recovery, "ready again")
                    : HistoryEvent(.fault, "not ready: \(reasons.joined(separator: "; "))", isFailure: true))
        }
        return events
    }
}

extension ServerSituation {
    /// The present situation.
    init(of server: Server) {
        let metrics = server.store.metrics
        let remote = metrics.remote
        self.init(
            reasons: server.readiness.reasons, isStopping: server.isStopping, reload: server.lastReload,
            backup: metrics.lastBackup, failovers: remote?.failovers ?? 0, primary: remote?.primary?.name
        )
    }
}
