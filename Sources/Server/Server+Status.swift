internal import Audit
internal import Synchronization
internal import TokenStore

extension Server {
    private static let statusPause = Duration.seconds(1)

    /// A line for `systemctl status`.
    var statusLine: String {
        let reasons = readiness.reasons.joined(separator: "; ")
        return "serves on \(listenerNames.joined(separator: " "))\(reasons.isEmpty ? "" : ", not ready: \(reasons)")"
    }

    /// Whether the files of the store were removed, cut or replaced: the server ends, so that its next start examines what there is.
    package var hasLostStore: Bool { store.fault?.cause == .vanished }

    /// Tells the service manager whenever the server becomes ready, or is not ready any more, until it is cancelled; stops a server
    /// that has lost its store.
    ///
    /// - Parameter line: The last one that was sent.
    func reportStatus(after line: String) async {
        var said = line
        while (try? await Task.sleep(for: Self.statusPause)) != nil, !isDraining.load(ordering: .relaxed) {
            if hasLostStore { return drain("the files of the store are not as they were", by: .none) }
            let line = statusLine
            guard line != said else { continue }
            notifier.send(.status(line))
            said = line
        }
    }
}
