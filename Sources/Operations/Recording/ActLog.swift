internal import Logging
internal import Synchronization
internal import TokenStore

/// Logs what operators do with the store: each act with who did it and what came of it, and no ids.
///
/// A command such as `import` sends many requests of one kind: the first is logged at once, the others are added up and logged
/// every ten seconds, so that millions of tokens are not thousands of lines.
///
/// Any thread.
final class ActLog: Sendable {
    private struct Series: Hashable {
        let name: String
        let what: String
        let requester: Requester
    }

    private let logger: Logger
    /// The series under way, with the requests that were not logged yet.
    private let counts = Mutex<[Series: Int]>([:])

    private static let interval = Duration.seconds(10)
    /// The most series that are added up at once; any other request is a line of its own.
    private static let limit = 100

    init(_ logger: Logger) {
        self.logger = logger
    }

    func note(_ act: OperatorAct, by requester: Requester) {
        switch act.outcome {
        case .done(let text): log(act.name, requester, text)
        case .counted(let count, let what):
            let series = Series(name: act.name, what: what, requester: requester)
            let (isFirst, isNew) = counts.withLock { counts in
                if let sum = counts[series] {
                    counts[series] = sum + count
                    return (false, false)
                }
                guard counts.count < Self.limit else { return (true, false) }
                counts[series] = 0
                return (true, true)
            }
            if isFirst { log(act.name, requester, "\(what): \(count)") }
            guard isNew else { return }
            Task { [self] in
                repeat { try? await Task.sleep(for: Self.interval) } while logRest(of: series)
            }
        }
    }

    func note(failure error: StoreError, of name: String, by requester: Requester) {
        let command = name.replacing("/", with: " ")
        logger.notice("\(command) requested by \(requester) failed: \(error)")
    }

    /// Logs what is left of all series; called at the end.
    func finish() {
        for series in counts.withLock({ Array($0.keys) }) { _ = logRest(of: series) }
    }

    /// Logs what has come since the last line of a series; false if nothing has, which is its end.
    private func logRest(of series: Series) -> Bool {
        let count = counts.withLock { counts in
            let count = counts[series]
            counts[series] = (count ?? 0) > 0 ? 0 : nil
            return count ?? 0
        }
        guard count > 0 else { return false }
        log(series.name, series.requester, "\(series.what): \(count) more")
        return true
    }

    private func log(_ name: String, _ requester: Requester, _ text: String) {
        logger.notice("\(name) requested by \(requester): \(text)")
    }
}
