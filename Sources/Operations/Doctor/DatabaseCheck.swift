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
        switch (isSealed, sealing.keyRing != nil) {
        case (true, false):
            return [
                .problem(
                    Self.topic, "the database holds tokens in the clear, and sealing is on",
                    "set sealing.enabled to off, or export the tokens and import them into a new database")
            ]
        case (false, true):
            return [
                .problem(
                    Self.topic, "the tokens in the database are sealed, and sealing is off",
                    "set sealing.enabled to on")
            ]
        case (false, false): return []
        case (true, true): break
        }
        guard let numbers else { return [] }
        let missing = sealing.keyNumbers.filter { !numbers.contains($0) }.sorted()
        return missing.map { number in
            .problem(
                Self.ringTopic, "key \(number) is missing, with which tokens in the database are sealed",
                "copy the key ring from a server that has the key"
            )
        }
    }
}

/// Checks how the last backups of a store on this machine ended, as the data folder's record says.
///
/// Its limits are those of the alerts in `deploy/prometheus/alerts.yaml`.
struct BackupCheck {
    /// Nil if no backup is recorded.
    let record: BackupRecord?
    /// How long the server has run, in seconds; nil if none does.
    let serverAge: Int64?
    /// In seconds since 1970.
    let now: Int64

    private static let topic = "Store"
    /// A backup that is older was probably made by a schedule that has stopped: most run each hour or each day.
    private static let oldInSeconds: Int64 = 26 * 3_600

    var findings: [Finding] {
        guard let record else { return absence }
        let success = record.successTime
        guard record.isSuccessful else {
            let before = success.map { "the last one that succeeded ended at \(LogTime.text($0))" }
            return [
                .warning(
                    Self.topic,
                    "the last backup failed at \(LogTime.text(record.endTime)); \(before ?? "none has succeeded")",
                    """
                    look at the output of token-cache backup (journalctl -u token-cache-backup for that of the timer), which says \
                    why, and make one again
                    """
                )
            ]
        }
        guard let success, now - success > Self.oldInSeconds else {
            return [.ok(Self.topic, "the last backup succeeded at \(LogTime.text(record.endTime))")]
        }
        return [
            .warning(
                Self.topic, "the last backup is \(Self.age(now - success)) old: it ended at \(LogTime.text(success))",
                """
                if backups are scheduled, look at the schedule (systemctl list-timers) and its output \
                (journalctl -u token-cache-backup); otherwise make one with token-cache backup
                """
            )
        ]
    }

    /// Warns if a server has run for long without a backup.
    private var absence: [Finding] {
        guard let serverAge, serverAge > Self.oldInSeconds else { return [] }
        return [
            .warning(
                Self.topic,
                "no backup is recorded, and the server has run for \(Self.age(serverAge)): if the disk is lost, so are all tokens",
                """
                systemctl enable --now token-cache-backup.timer makes one each hour; if the machine is backed up in another way, \
                ignore this
                """
            )
        ]
    }

    private static func age(_ seconds: Int64) -> String {
        seconds < 72 * 3_600 ? "\(seconds / 3_600) hours" : "\(seconds / 86_400) days"
    }
}
