import System
import TokenStore

/// Reports what the walk over all rows has found.
enum WalkCheck {
    private static let topic = "Store"
    /// The limit of the alert in `deploy/prometheus/alerts.yaml`; a round takes less than a day.
    private static let oldInSeconds: Int64 = 3 * 86_400

    /// - Parameter now: In seconds since 1970.
    static func findings(_ walk: WalkStatus, now: Int64) -> [Finding] {
        let faults = walk.faults.map { faults in
            Finding.problem(
                topic, "the walk over all rows has found damage: \(faults)",
                """
                find out who or what has changed the database; token-cache verify makes a new round at once and names what it \
                finds. A new login replaces a row that does not open; for other damage, restore a backup
                """
            )
        }
        return [round(walk, now: now)] + [faults].compactMap(\.self)
    }

    private static func round(_ walk: WalkStatus, now: Int64) -> Finding {
        let present = "the present one has visited \(walk.progress.done) of \(walk.progress.total) rows"
        guard let last = walk.last, let end = last.endedAt else {
            return .ok(topic, "no walk over all rows has ended yet; \(present)")
        }
        let rows = "\(last.tokens) tokens and \(last.sessions) sessions"
        let text = "the last walk over all rows ended at \(UTCTime.timestamp(end)), with \(rows); \(present)"
        guard now - end > oldInSeconds else { return .ok(topic, text) }
        return .warning(topic, text, "a round takes a day: read the server's log, or run token-cache verify")
    }
}

extension WalkStatus {
    /// How many rows do not open, and how much other damage there is: as of the last complete round, or of the present one if it has
    /// found more.
    var faultCount: Int {
        [last, present].compactMap(\.self).map { $0.unreadableCount + $0.damages.count }.max() ?? 0
    }

    /// What the last complete round has found to be damaged or, if it has found nothing, the present one; nil if nothing is.
    ///
    /// Missing keys are reported with the key ring.
    fileprivate var faults: String? {
        for found in [last, present].compactMap(\.self) {
            var faults = found.reasonsBesideKeys.sorted { $0.key < $1.key }.map { "\($0.value) x \($0.key)" }
            let more = found.unreadableCount > found.unreadableRows.count ? " and others" : ""
            if !faults.isEmpty {
                faults.append("not opened were \(found.unreadableRows.joined(separator: ", "))\(more)")
            }
            faults += found.damages
            if !faults.isEmpty { return faults.joined(separator: "; ") }
        }
        return nil
    }
}
