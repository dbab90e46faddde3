internal import Server
internal import Settings
internal import TokenStore

/// Checks a store on other machines, which is looked at from here whether or not a server runs.
struct DatabaseCheck {
    private let inspection: StoreInspection
    private static let topic = "Database"
    private static let ringTopic = "Key ring"

    /// Looks at the database; takes seconds.
    init(_ inspector: any StoreInspector) {
        inspection = inspector.inspect()
    }

    init(_ inspection: StoreInspection) {
        self.inspection = inspection
    }

    var findings: [Finding] {
        inspection.findings.map { found in
            switch found.state {
            case .fine: .ok(Self.topic, found.text)
            case .warning: .warning(Self.topic, found.text, found.advice)
            case .problem: .problem(Self.topic, found.text, found.advice)
            }
        }
    }

    /// The fingerprint of the key ring that the database was sealed with; nil in the clear, or if it is not known.
    var keyRing: String? { inspection.sealing?.keyRing }

    /// What is wrong with the keys of the database.
    ///
    /// - Parameters:
    ///   - isSealed: Whether sealing is on in the settings.
    ///   - numbers: Those of the keys that are here; nil if the ring cannot be read.
    func keyFindings(isSealed: Bool, numbers: [Int]?) -> [Finding] {
        guard let sealing = inspection.sealing else { return [] }
        guard isSealed == (sealing.keyRing != nil) else {
            return [
                isSealed
                    ? .problem(
                        Self.topic, "the database holds tokens in the clear, and sealing is on",
                        "set sealing.enabled to off, or copy the tokens into a new database with token-cache copy")
                    : .problem(
                        Self.topic, "the tokens in the database are sealed, and sealing is off",
                        "set sealing.enabled to on")
            ]
        }
        guard isSealed, let numbers else { return [] }
        let missing = sealing.keyNumbers.filter { !numbers.contains($0) }.sorted()
        return missing.map { number in
            .problem(
                Self.ringTopic, "key \(number) is missing, with which tokens in the database are sealed",
                "copy the key ring from a server that has the key"
            )
        }
    }
}

/// Checks how the last backup of a store on this machine ended, as the data folder's record says.
enum BackupCheck {
    private static let topic = "Store"
    /// The limit of the alert in `deploy/prometheus/alerts.yaml`: most schedules run each hour or each day.
    private static let oldInSeconds: Int64 = 26 * 3_600

    /// - Parameters:
    ///   - record: Nil if no backup is recorded.
    ///   - now: In seconds since 1970.
    static func finding(_ record: BackupRecord?, now: Int64) -> Finding {
        guard let record else { return .ok(topic, "no backup is recorded yet") }
        let last = record.successTime.map { "the last one that succeeded ended at \(LogTime.text($0))" }
        guard record.isSuccessful else {
            return .warning(
                topic, "the last backup failed at \(LogTime.text(record.endTime)); \(last ?? "none has succeeded")",
                """
                look at the output of token-cache backup (journalctl -u token-cache-backup for that of the timer), which says \
                why, and make one again
                """
            )
        }
        guard now - record.endTime > oldInSeconds else {
            return .ok(topic, "the last backup succeeded at \(LogTime.text(record.endTime))")
        }
        return .warning(
            topic, "the last backup is older than a day: it ended at \(LogTime.text(record.endTime))",
            """
            if backups are scheduled, look at the schedule (systemctl list-timers) and its output \
            (journalctl -u token-cache-backup); otherwise make one with token-cache backup
            """
        )
    }
}
