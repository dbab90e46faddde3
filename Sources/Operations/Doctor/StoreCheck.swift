import Glibc
import Server
import Settings
import System
import TokenStore

/// Checks the store and its key ring: asks the running server if there is one, otherwise reads the files.
struct StoreCheck {
    let settings: Settings
    let provider: any StoreProvider
    let directory: String
    let server: RunningServer
    private static let topic = "Store"
    private static let ringTopic = "Key ring"

    func findings() -> [Finding] {
        let own: [Finding]? =
            switch server {
            case .running: askServer()
            case .hidden, .silent:
                [.warning(Self.topic, "the store could not be checked", "see the finding about the server above")]
            case .none: nil
            }
        if let shared = provider as? any SharedStoreProvider {
            let found = shared.inspect()
            return (own ?? []) + found.findings + (own == nil ? keyFindings(found.sealing) : [])
        }
        guard let files = provider as? any FileStoreProvider else { return own ?? [] }
        let damagedCopy = files.damagedCopy.map { path in
            Finding.warning(
                Self.topic, "\(path) is a copy of a damaged WAL, with tokens that the store may lack",
                "restore a backup if you need these tokens, and remove the copy when you no longer need it"
            )
        }
        return [BackupCheck.finding(BackupRecord(in: directory), now: Int64(time(nil)))]
            + (own ?? examine(files)) + [damagedCopy].compactMap(\.self)
    }

    // MARK: - Running

    private func askServer() -> [Finding] {
        let client = ServerClient(in: directory)
        var findings: [Finding] = []
        do {
            let found = try client.perform(StatisticsOfStore())
            findings.append(.ok(Self.topic, Self.text(found)))
            findings += found.walk.map { WalkCheck.findings($0, now: Int64(time(nil))) } ?? []
            if found.unreadableReads > 0 {
                findings.append(
                    .problem(
                        Self.topic,
                        "since the start, \(found.unreadableReads) reads found a row that cannot be decrypted",
                        "run token-cache verify, which counts such rows"
                    )
                )
            }
            let reply = try client.perform(ListKeys())
            let keys = reply.keys
            findings += (reply.missing ?? []).map(Self.missing)
            findings.append(.ok(Self.ringTopic, "the server has \(Self.keys(keys.map(\.number)))"))
            findings += [reply.fault].compactMap { $0.map { .problem(Self.ringTopic, $0) } }
        } catch {
            findings.append(
                .problem(Self.topic, "the server did not report on its store", "try again, or read the server's log"))
        }
        return findings
    }

    // MARK: - Files

    private func examine(_ files: any FileStoreProvider) -> [Finding] {
        let found: StoreExamination?
        do {
            found = try files.examine()
        } catch {
            return [.problem(Self.topic, error)] + keyFindings(nil)
        }
        guard let found, found.schemaVersion != nil || found.walBytes > 0 else {
            return [absentStore()] + keyFindings(nil)
        }
        let walk = found.walk.map { WalkStatus($0, total: found.tokens) }
        return [.ok(Self.topic, Self.text(found))] + (found.damage.map { [.problem(Self.topic, $0)] } ?? [])
            + (walk.map { WalkCheck.findings($0, now: Int64(time(nil))) } ?? []) + keyFindings(found.sealing)
    }

    private func absentStore() -> Finding {
        let file = StoreSelection.keyRing(settings)
        guard FileStatus(file.path) != nil else {
            return .ok(Self.topic, "there is none yet; the first start creates it")
        }
        return .warning(
            Self.topic,
            "there is none, although its key ring \(file.path) is there; the next start creates an empty store",
            "if tokens are missing, check that \(directory) is the right folder and its disk is mounted"
        )
    }

    // MARK: - Keys

    /// - Parameter sealing: How the store is sealed; nil if it has no rows, or if that is not known.
    private func keyFindings(_ sealing: StoreSealing?) -> [Finding] {
        let file = StoreSelection.keyRing(settings)
        // A key ring that cannot be read, or is another store's, is reported by `ring`.
        return Self.missingKeys(of: sealing, try? file.load()) + ring(file, of: sealing?.keyRing)
    }

    /// Reports the keys of a store that its key ring lacks.
    ///
    /// - Parameter ring: Nil if it cannot be read.
    static func missingKeys(of sealing: StoreSealing?, _ ring: KeyRing?) -> [Finding] {
        guard let sealing, let ring, KeyRing.fingerprint(ring.identity()) == sealing.keyRing else { return [] }
        return sealing.keyNumbers.filter { ring.key(numbered: $0) == nil }.sorted().map(missing)
    }

    private func ring(_ file: KeyRingFile, of fingerprint: String?) -> [Finding] {
        do {
            guard let ring = try file.load() else {
                guard fingerprint != nil else {
                    return [.ok(Self.ringTopic, "\(file.path) does not exist yet; the first start creates it")]
                }
                if let credential = StoreCredential.path(), settings.sealing.keyRing.isEmpty {
                    return [
                        .warning(
                            Self.ringTopic, "\(credential) is a credential, which only the service can open",
                            "run token-cache doctor again while the service runs"
                        )
                    ]
                }
                return [.problem(Self.ringTopic, KeyRingError.missing(path: file.path))]
            }
            if let fingerprint, fingerprint != KeyRing.fingerprint(ring.identity()) {
                return [.problem(Self.ringTopic, KeyRingError.ofAnotherStore(path: file.path))]
            }
            return [.ok(Self.ringTopic, "\(file.path) has \(Self.keys(ring.keys.map(\.number)))")]
        } catch {
            return [.problem(Self.ringTopic, error)]
        }
    }

    // MARK: - Texts

    /// Describes the store of a running server.
    private static func text(_ found: StoreStatistics) -> String {
        let bytes = found.databaseBytes.map { " in \($0) bytes" } ?? ""
        let schema = found.schemaVersion.map { ", schema \($0)" } ?? ""
        return tokens(found.tokens) + bytes + schema
    }

    /// Describes a closed store.
    private static func text(_ found: StoreExamination) -> String {
        guard let schema = found.schemaVersion else {
            return "all tokens are still in its WAL of \(found.walBytes) bytes"
        }
        let wal =
            found.walBytes > 0
            ? "; not counting a WAL of \(found.walBytes) bytes, which the next start moves into the database" : ""
        let time = found.lastWrite.map { ", last written before \($0)" } ?? ""
        return "\(tokens(found.tokens)) in \(found.databaseBytes) bytes, schema \(schema)\(time)\(wal)"
    }

    private static func tokens(_ count: some BinaryInteger) -> String { "\(count) \(count == 1 ? "token" : "tokens")" }

    /// Reports a key that rows are sealed with and the ring lacks.
    private static func missing(_ number: Int) -> Finding {
        .problem(
            ringTopic, "tokens are sealed with key \(number), which the key ring does not have",
            """
            put the key ring of that time back (sealing.key_ring), or with PostgreSQL that of a server that has the key, and \
            restart the server
            """
        )
    }

    private static func keys(_ numbers: [Int]) -> String {
        let list = numbers.map(String.init).joined(separator: ", ")
        return numbers.count == 1 ? "1 key, number \(list)" : "\(numbers.count) keys, numbers \(list)"
    }
}

/// Checks how the last backup of a store on this machine ended, by the record in the data folder.
enum BackupCheck {
    private static let topic = "Store"
    /// The limit of the alert in `deploy/prometheus/alerts.yaml`: most schedules run each hour or each day.
    private static let oldInSeconds: Int64 = 26 * 3_600

    /// - Parameters:
    ///   - record: Nil if no backup is recorded.
    ///   - now: In seconds since 1970.
    static func finding(_ record: BackupRecord?, now: Int64) -> Finding {
        guard let record else { return .ok(topic, "no backup is recorded yet") }
        let last = record.successTime.map { "the last one that succeeded ended at \(UTCTime.timestamp($0))" }
        guard record.isSuccessful else {
            return .warning(
                topic,
                "the last backup failed at \(UTCTime.timestamp(record.endTime)); \(last ?? "none has succeeded")",
                """
                look at the output of token-cache backup (journalctl -u token-cache-backup for that of the timer), which says \
                why, and make one again
                """
            )
        }
        guard now - record.endTime > oldInSeconds else {
            return .ok(topic, "the last backup succeeded at \(UTCTime.timestamp(record.endTime))")
        }
        return .warning(
            topic, "the last backup is older than a day: it ended at \(UTCTime.timestamp(record.endTime))",
            """
            if backups are scheduled, look at the schedule (systemctl list-timers) and its output \
            (journalctl -u token-cache-backup); otherwise make one with token-cache backup
            """
        )
    }
}
