import Audit
import Synchronization

extension FuzzTarget {
    /// An audit log that was changed: verification finds every change, also after a server has gone on with the log.
    ///
    /// The first line of an input is the file with the chain's end, the rest is the log.
    static let audit = FuzzTarget(
        "audit",
        words: [
            "\n", "{\"sequence\":", ",\"period\":", ",\"mac\":\"", "\"}", "\"", "\\\"", ",", "1", "2", "0",
            "18446744073709551615", "18446744073709551614", "9223372036854775807", "00000000000000000003",
            ",\"reason\":\"lines_missing\"", "\"action\":\"change_key\"", "\"action\":\"close_log\"",
            ",\"previous\":\"", ",\"chain\":\"", "{\"sequence\":1,\"period\":0,\"time\":\"",
        ],
        mutationCount: 150
    ) { input in
        let head = input.prefix { $0 != UInt8(ascii: "\n") }
        let log = input.dropFirst(head.count + 1)
        // A verification that begins in the midst derives the keys of all periods before, of millions for minutes.
        guard !log.text.hasLongPeriod else { return }
        let path = Files.write(log, to: "audit-input")
        if try SampleLog.shared.isSound(path) { try SampleLog.shared.checkIsPart(log.lines) }
        try SampleLog.shared.checkReopening(log, head: Array(head))
    }
}

extension ArraySlice<UInt8> {
    /// The lines that have an end.
    fileprivate var lines: [[UInt8]] {
        split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).dropLast().map(Array.init)
    }
}

extension Text {
    /// Whether a line may be of a period from the thousandth on.
    fileprivate var hasLongPeriod: Bool {
        let name = Array("\"period\":".unicodeScalars)
        return indices.contains { index in
            guard self[index] == "\"", self[index...].starts(with: name) else { return false }
            return self[index...].dropFirst(name.count).prefix(4).count(where: \.isDigit) == 4
        }
    }
}

/// A log of two periods, whose keys and lines are the same in each process.
private final class SampleLog: Sendable {
    static let shared: SampleLog = {
        do { return try SampleLog() } catch { preconditionFailure("a log can be written: \(error)") }
    }()

    private let firstKey: AuditFirstKey
    private let lines: [[UInt8]]
    private static let time: Int64 = 1_795_000_000
    private static let event = AuditEvent(.store, .ok, by: .user, address: "192.0.2.1", requestID: "r-1")

    init() throws {
        let key = "first-key AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\n"
        firstKey = try AuditFirstKey(contentsOf: Files.write(key.utf8, to: "first-key"))
        let folder = Files.emptyFolder("audit-sample")
        try RunningKey(firstKey, at: Self.time).install(folder + "/audit-key")
        let time = Mutex(Self.time * 1_000_000)
        let log = try AuditLog(
            path: folder + "/audit.log", keyPath: folder + "/audit-key", clock: { time.withLock(\.self) },
            report: { _ in })
        try log.append([Self.event])
        time.withLock { $0 += 1_000_000 * AuditLog.period }
        log.keepUp()
        try log.append([Self.event, Self.event])
        log.close()
        lines = Files.read(folder + "/audit.log")[...].lines
    }

    /// Whether a verification finds nothing.
    func isSound(_ path: String) throws -> Bool {
        var verifier = AuditVerifier(firstKey)
        try verifier.read(path)
        return try verifier.finish().isSound
    }

    /// Throws unless lines follow one another in the log as it was written.
    func checkIsPart(_ found: [[UInt8]]) throws {
        try require(
            found.isEmpty || lines.indices.contains { lines[$0...].starts(with: found) },
            "a log that was changed is sound")
    }

    /// Goes on with a log that may be anything.
    func checkReopening(_ log: ArraySlice<UInt8>, head: [UInt8]) throws {
        let folder = Files.emptyFolder("audit")
        let (path, keyPath) = (folder + "/audit.log", folder + "/audit-key")
        try RunningKey(firstKey, at: Self.time).install(keyPath)
        Files.write(head + [UInt8(ascii: "\n")], to: keyPath + ".head")
        Files.write(log, to: path)
        do throws(AuditError) {
            let log = try AuditLog(
                path: path, keyPath: keyPath, clock: { (Self.time + 100) * 1_000_000 }, report: { _ in })
            try log.append([Self.event])
            log.close()
        } catch {
            return try compare(Files.read(path), Array(log), "a log that was refused: \(error)")
        }
        let lines = log.lines
        try compare(Array(Files.read(path)[...].lines.prefix(lines.count)), lines, "the lines before the start")
        if try isSound(path) { try checkIsPart(lines) }
    }
}
