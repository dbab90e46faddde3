import Cryptography
import Dispatch
import Glibc
import Synchronization
package import System

/// The audit log of a process: appends lines that cannot be changed, removed or reordered unnoticed.
///
/// The lines of several events are written with one write(2), under one lock, so that they are in the order of their numbers. A
/// thread of the log writes the loops' events, all that have gathered since its last write; other events are written by the thread
/// that records them. From then on lines survive the process, however that ends. They survive a power cut once they are synced:
/// when the key or the file changes, and at the end.
///
/// Any thread.
package final class AuditLog: Sendable {
    /// How long a key is used, in seconds.
    package static let period: Int64 = 900

    private let path: String
    private let keyPath: String
    private let pseudonymKey: SecretKey
    private let writer: Mutex<ChainWriter>
    private let queue = DispatchQueue(label: "audit log")
    private let submitted = Mutex(SubmittedEvents())
    /// Whether the disk does not respond; changed while `submitted` is locked.
    private let hasStalled = Atomic<Bool>(false)
    private let repeated = Mutex(RepeatedEvents())
    /// The writer's figures as of its last change, outside its lock so that reading them does not wait for a slow disk.
    private let published: Mutex<AuditFigures>
    /// Locked while the file of the running key or the log's file is replaced.
    private let replacing = Mutex(())
    /// Whether the last attempt to replace the running key's file has failed.
    private let keyIsFailing = Atomic<Bool>(false)
    private let clock: @Sendable () -> Int64
    private let report: @Sendable (AuditNotice) -> Void

    /// Opens the log and records the start.
    ///
    /// - Parameters:
    ///   - path: The path of the file, which is created if it does not exist.
    ///   - keyPath: The path of the running key, which `token-cache audit key` has made.
    ///   - clock: Microseconds since 1970.
    ///   - report: Called with what an operator should know, on any thread, without a lock.
    package init(
        path: String, keyPath: String, clock: @escaping @Sendable () -> Int64 = UTCTime.microseconds,
        report: @escaping @Sendable (AuditNotice) -> Void
    ) throws(AuditError) {
        guard let running = try RunningKey(contentsOf: keyPath) else { throw .noRunningKey(path: keyPath) }
        let file = try AuditFile(path)
        let headFile = try HeadFile(RunningKey.headPath(beside: keyPath))
        let found = try LogEnd(of: file, running, saved: headFile.load())
        var writer = ChainWriter(file, running, headFile, after: found)
        try writer.write([], .opened(found.finding, removedBytes: found.removedBytes), at: clock())
        published = Mutex(writer.figures)
        self.writer = Mutex(writer)
        self.path = path
        self.keyPath = keyPath
        pseudonymKey = running.pseudonymKey
        self.clock = clock
        self.report = report
        if let notice = AuditNotice(found, path: path) { report(notice) }
        keepUp()
    }

    /// Fails if a log could not be opened; changes nothing, and works while a server has the log open.
    ///
    /// - Parameters:
    ///   - path: The log's path; the file need not exist.
    ///   - keyPath: The path of the running key.
    package static func examine(path: String, keyPath: String) throws(AuditError) {
        guard let running = try RunningKey(contentsOf: keyPath) else { throw .noRunningKey(path: keyPath) }
        // Files that are created anew: the running key every 15 minutes, and the log if it is missing.
        var created = [keyPath]
        if FileStatus.exists(path) {
            try AuditFile(path, locks: false).checkOrigin(chain: running.chain)
        } else {
            created.append(path)
        }
        for file in created where unsafe access(Path.folder(of: file), W_OK | X_OK) != 0 {
            throw .file(path: file, .last("open"))
        }
    }

    /// Makes the pseudonyms for the events of one thread.
    package func makeHasher() -> AuditHasher { AuditHasher(pseudonymKey) }

    /// Whether the disk has not responded for too long.
    package var isStalled: Bool { hasStalled.load(ordering: .relaxed) }

    package var figures: AuditFigures {
        var figures = published.withLock(\.self)
        if isStalled { figures.isFailing = true }
        return figures
    }

    // MARK: - Recording

    /// Records events without waiting for the disk.
    ///
    /// - Parameters:
    ///   - events: What happened.
    ///   - isRetried: Whether events that cannot be written are written later; otherwise they are lost, as their answers are refused.
    ///   - done: Called once, on any thread: with true once the events are in the log, and with false if they could not be
    ///     written, are too many, or the disk takes too long. When a slow disk responds after all, they are written.
    package func submit(
        _ events: [AuditEvent], isRetried: Bool = false, done: @escaping SubmittedEvents.Done = { _ in }
    ) {
        let (isFirst, isAwaited) = submitted.withLock {
            $0.add(events, isRetried: isRetried, isStalled ? nil : done, at: .now)
        }
        if isFirst { queue.async { [self] in writeSubmitted() } }
        if !isAwaited { done(false) }
    }

    /// - Parameter isLast: Whether events that cannot be written are lost, also those that are retried otherwise.
    private func writeSubmitted(isLast: Bool = false) {
        let (taken, wasStalled) = submitted.withLock {
            ($0.take(at: .now), hasStalled.exchange(false, ordering: .relaxed))
        }
        // Joining the two copies all events, so it is left out when there is nothing to join, which is nearly always.
        let events = taken.retried.isEmpty ? taken.events : taken.retried + taken.events
        let isWritten =
            (try? perform { (writer, now) throws(AuditError) -> Void in
                if wasStalled || taken.lost > 0 { writer.noteStall(lostEvents: taken.lost) }
                try writer.write(events, at: now, retrying: isLast ? 0 : taken.retried.count)
            }) != nil
        let count = isWritten || isLast ? taken.retried.count : 0
        for done in submitted.withLock({ $0.finish(removing: count, at: .now) }) { done(isWritten) }
        // The disk responds again: the next lines say so, with the number of events that were lost in the meantime.
        if isStalled { writeSubmitted(isLast: isLast) }
    }

    /// Gives up waiting for a disk that has not responded for too long; to be called every second or so.
    package func checkProgress(at now: MonotonicTime = .now) {
        let (done, isNew) = submitted.withLock { submitted -> ([SubmittedEvents.Done], Bool) in
            guard submitted.isLate(at: now) else { return ([], false) }
            return (submitted.giveUp(), !hasStalled.exchange(true, ordering: .relaxed))
        }
        if isNew { report(.failing(.stalled(path: path))) }
        for done in done { done(false) }
    }

    /// Writes all of the events or, if it throws, none of them; waits for the disk.
    package func append(_ events: [AuditEvent]) throws(AuditError) {
        guard !events.isEmpty else { return }
        try perform { (writer, now) throws(AuditError) in try writer.write(events, at: now) }
    }

    /// Whether an event was only counted and need not be appended, as one of its client and kind was recorded within the last
    /// minute.
    ///
    /// The count is recorded when the minute is over; if the process dies before, it is lost.
    ///
    /// - Parameter event: Without the fields in which events of one client and kind differ, such as the request's id.
    package func isCounted(_ event: AuditEvent) -> Bool {
        repeated.withLock { $0.count(event, at: clock()) }
    }

    // MARK: - Upkeep

    /// Begins a new file if the current one was removed, records the counts of repeated events, replaces the key when its period
    /// is over, and tries again to write after a failure.
    ///
    /// To be called every second or so, on a thread that may wait for the disk.
    package func keepUp() {
        replaceRemovedFile()
        // A failure is reported when it begins, and the next call tries again.
        try? append(repeated.withLock { $0.take(at: clock()) })
        queue.sync { writeSubmitted() }
        try? perform { (writer, now) throws(AuditError) in
            let age = now / 1_000_000 - writer.running.periodStart
            // A negative age means that the clock was set back: then nobody knows how old the key is.
            if age >= Self.period || age < 0 { try writer.endPeriod(.keyChanged, at: now) }
        }
        saveKey()
    }

    private func replaceRemovedFile() {
        let (isRemoved, isKnown) = writer.withLock { ($0.file.isRemoved, $0.obstacle != nil) }
        guard isRemoved else { return }
        if !isKnown { report(.fileRemoved(path: path)) }
        do {
            try reopen()
        } catch {
            writer.withLock { writer in
                // Another thread may have begun a new file meanwhile.
                guard writer.file.isRemoved else { return }
                writer.obstacle = error
                // The new file may need that room.
                writer.file.empty()
            }
        }
    }

    /// Continues in a new file after the current one was renamed; does nothing if it was not.
    package func reopen() throws(AuditError) {
        try replacing.withLock { (_) throws(AuditError) in
            let file = writer.withLock { $0.file }
            guard !file.isAt(path) else { return }
            let new = try AuditFile(path)
            guard new.size == 0 else { throw .notEmpty(path: path) }
            let former = try perform { (writer, now) throws(AuditError) in try writer.change(to: new, at: now) }
            do throws(AuditError) {
                try former.synchronize()
            } catch {
                report(.formerNotSynced(error))
            }
        }
        saveKey()
    }

    /// Records the server's end; later events are refused.
    package func close() {
        queue.sync { writeSubmitted(isLast: true) }
        try? append(repeated.withLock { $0.take(at: nil) })
        try? perform { (writer, now) throws(AuditError) in
            defer { writer.close() }
            try writer.endPeriod(.closed, at: now)
        }
        saveKey()
    }

    /// Replaces the running key's file if the key has changed.
    private func saveKey() {
        replacing.withLock { _ in
            guard let (running, file) = writer.withLock({ $0.isKeyUnsaved ? ($0.running, $0.file) : nil }) else {
                return
            }
            do throws(AuditError) {
                // Otherwise a power cut could leave the new key on the disk without the lines before it.
                try file.synchronize()
                try running.save(keyPath)
            } catch {
                if !keyIsFailing.exchange(true, ordering: .relaxed) { report(.keyNotSaved(error)) }
                return
            }
            keyIsFailing.store(false, ordering: .relaxed)
            // Another period may have ended in between.
            writer.withLock { if $0.running.chainKey.period == running.chainKey.period { $0.isKeyUnsaved = false } }
        }
    }

    /// Calls `body` with the writer and the time, and then reports the writer's notices.
    private func perform<Result: Sendable>(
        _ body: (inout ChainWriter, _ now: Int64) throws(AuditError) -> Result
    ) throws(AuditError) -> Result {
        var notices: [AuditNotice] = []
        defer { for notice in notices { report(notice) } }
        return try writer.withLock { (writer) throws(AuditError) in
            defer {
                swap(&notices, &writer.notices)
                published.withLock { $0 = writer.figures }
            }
            // Within the lock, so that the times of lines are in order.
            return try body(&writer, clock())
        }
    }
}

/// The audit log in numbers.
package struct AuditFigures: Sendable {
    /// The sequence number of the last line.
    package var sequence: UInt64 = 0
    /// The first 48 bits of the last line's MAC, as a number that a metric, whose value is a Double, represents exactly.
    package var headNumber: UInt64 = 0
    /// Lines that were written since the start.
    package var lines: UInt64 = 0
    /// Failed attempts to write lines, since the start.
    package var failures: UInt64 = 0
    /// Whether lines cannot be written at the moment.
    package var isFailing = false

    package init() {}

    mutating func setHead(_ end: borrowing ChainEnd) {
        sequence = end.sequence
        headNumber = end.number
    }
}

extension ChainEnd {
    /// The first 48 bits of the MAC.
    var number: UInt64 { mac.prefix(6).reduce(0) { $0 << 8 | UInt64($1) } }
}

/// A change in the state of the audit log, for operators.
package struct AuditNotice: Sendable, CustomStringConvertible {
    /// Whether lines may be missing, lost or forged, so that an operator has to act.
    package let isAlarm: Bool
    package let description: String

    private init(_ description: String, isAlarm: Bool = true) {
        (self.description, self.isAlarm) = (description, isAlarm)
    }

    static func failing(_ error: AuditError) -> AuditNotice {
        AuditNotice("the audit log cannot be written: \(error)")
    }
    static func working(lostEvents: UInt64) -> AuditNotice {
        AuditNotice("the audit log is written again; \(lostEvents) events are not in it", isAlarm: false)
    }
    static func fileRemoved(path: String) -> AuditNotice {
        AuditNotice("the audit log \(path) was removed, with its lines; find out who did that")
    }
    static func keyNotSaved(_ error: AuditError) -> AuditNotice {
        AuditNotice(
            """
            the running key of the audit log cannot be replaced, so lines of more than 15 minutes ago can still be forged on \
            this machine: \(error)
            """)
    }
    static func formerNotSynced(_ error: AuditError) -> AuditNotice {
        AuditNotice("the renamed audit log could not be synced, so a power cut may lose its last lines: \(error)")
    }

    /// What a start found wrong; nil if nothing.
    init?(_ found: LogEnd, path: String) {
        let sequence = found.end.sequence
        switch found.finding {
        case .unaltered, .newChain:
            guard found.removedBytes > 0 else { return nil }
            self.init(
                "the last line of the audit log \(path) was not complete, and its \(found.removedBytes) bytes were removed",
                isAlarm: false)
        case .newFile:
            self.init(
                "the audit log \(path) is new or empty, and continues after line \(sequence), which is in an earlier file",
                isAlarm: false)
        case .linesMissing:
            self.init(
                """
                the audit log \(path) does not end with the line that the server wrote last, which has sequence number \
                \(sequence): after a power cut the disk may have lost lines, otherwise find out who removed or changed them, \
                with token-cache audit verify
                """)
        }
    }
}
