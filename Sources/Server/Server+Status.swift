internal import Synchronization

extension Server {
    private static let statusPause = Duration.seconds(1)

    /// A line for `systemctl status`.
    var statusLine: String {
        let reasons = readiness.reasons.joined(separator: "; ")
        return "serves on \(listenerNames.joined(separator: " "))\(reasons.isEmpty ? "" : ", not ready: \(reasons)")"
    }

    /// Tells the service manager whenever the server becomes ready, or is not ready any more, until it is cancelled.
    ///
    /// - Parameter line: The last one that was sent.
    func reportStatus(after line: String) async {
        var said = line
        while (try? await Task.sleep(for: Self.statusPause)) != nil, !isDraining.load(ordering: .relaxed) {
            let line = statusLine
            guard line != said else { continue }
            notifier.send(.status(line))
            said = line
        }
    }
}
