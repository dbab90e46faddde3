import Cryptography
import System

/// Writes a chain to its file.
///
/// Used by one thread at a time.
struct ChainWriter: ~Copyable {
    private(set) var file: AuditFile
    private(set) var running: RunningKey
    private(set) var figures = AuditFigures()
    /// What is to be reported, in this order.
    var notices: [AuditNotice] = []
    /// Whether the file of the running key has to be replaced.
    var isKeyUnsaved = false
    /// Why no new file could be made after the current one was removed; nothing is written while it is set.
    var obstacle: AuditError?
    private var encoder: LineEncoder
    private var headFile: HeadFile
    /// Events that were lost since the failure began.
    private var lostEvents: UInt64 = 0
    private var lines: [UInt8] = []
    private var isClosed = false

    /// - Parameters:
    ///   - file: The file whose end was examined.
    ///   - running: The running key as its file has it.
    ///   - headFile: Where the chain's end is saved.
    ///   - found: Where the chain continues.
    init(_ file: AuditFile, _ running: RunningKey, _ headFile: consuming HeadFile, after found: LogEnd) {
        self.file = file
        self.running = running
        // `periodStart` stays as it is, so that the key is replaced when its time is over.
        self.running.chainKey = found.key
        self.headFile = headFile
        encoder = LineEncoder(after: found.end, found.key)
        figures.setHead(found.end)
    }

    /// Writes lines: all of them or, with an error, none.
    ///
    /// - Parameters:
    ///   - events: Of clients and operators.
    ///   - own: An event of the log itself: an anchor is written before the others, anything else after them.
    ///   - microseconds: The current time, since 1970.
    ///   - retried: How many of the first events are written later if they cannot be written now.
    mutating func write(
        _ events: [AuditEvent], _ own: LogEvent? = nil, at microseconds: Int64, retrying retried: Int = 0
    ) throws(AuditError) {
        let before = encoder.end
        do throws(AuditError) {
            guard !isClosed else { throw .closed }
            if let obstacle { throw obstacle }
            if events.isEmpty && own == nil && !figures.isFailing { return }
            encode(events, own, microseconds)
            try file.append(lines.span)
        } catch {
            encoder.revert(to: before)
            figures.failures += 1
            lostEvents += events.dropFirst(retried).reduce(0) { $0 + ($1.count ?? 1) }
            if !figures.isFailing && !isClosed { notices.append(.failing(error)) }
            figures.isFailing = true
            throw error
        }
        if figures.isFailing {
            notices.append(.working(lostEvents: lostEvents))
            (figures.isFailing, lostEvents) = (false, 0)
        }
        figures.lines += encoder.end.sequence - before.sequence
        figures.setHead(encoder.end)
        headFile.save(encoder.end)
    }

    /// Notes that events were dropped, or that the disk did not respond; the next lines say so.
    mutating func noteStall(lostEvents count: UInt64) {
        lostEvents += count
        figures.isFailing = true
    }

    private mutating func encode(_ events: [AuditEvent], _ own: LogEvent?, _ microseconds: Int64) {
        lines.removeAll(keepingCapacity: true)
        let chain = running.chain
        if let own, own.isAnchor { encoder.append(own, chain: chain, at: microseconds, to: &lines) }
        if figures.isFailing {
            encoder.append(.resumed(lostEvents: lostEvents), chain: chain, at: microseconds, to: &lines)
        }
        for event in events { encoder.append(event, at: microseconds, to: &lines) }
        if let own, !own.isAnchor { encoder.append(own, chain: chain, at: microseconds, to: &lines) }
    }

    /// Writes the last line of the period and continues with the next key.
    ///
    /// - Parameters:
    ///   - event: The event of that line.
    ///   - microseconds: The current time, since 1970.
    mutating func endPeriod(_ event: LogEvent, at microseconds: Int64) throws(AuditError) {
        let key = running.chainKey.next()
        let hash = key.lineHash()
        try write([], event, at: microseconds)
        encoder.use(hash)
        running.chainKey = key
        running.periodStart = microseconds / 1_000_000
        running.end = encoder.end
        isKeyUnsaved = true
    }

    /// Continues in another file, which is empty; stays with the current one if that fails.
    ///
    /// - Returns: The former file.
    mutating func change(to new: AuditFile, at microseconds: Int64) throws(AuditError) -> AuditFile {
        let (former, end, obstacle) = (file, encoder.end, obstacle)
        // A verification would report an incomplete line.
        try? former.cutTornBytes()
        (file, self.obstacle) = (new, nil)
        do {
            try write([], .continued, at: microseconds)
        } catch {
            (file, self.obstacle) = (former, obstacle)
            throw error
        }
        // A start reads only the new file, whose first line follows this end.
        running.end = end
        isKeyUnsaved = true
        return former
    }

    /// Refuses further lines.
    mutating func close() {
        isClosed = true
    }
}

/// Events that the log's thread is to write, and the callbacks of those who wait for that.
///
/// Used by one thread at a time.
package struct SubmittedEvents {
    package typealias Done = @Sendable (_ isRecorded: Bool) -> Void

    private var events: [AuditEvent] = []
    /// Events that stay until they are written; those that are being written are still among them.
    private var retried: [AuditEvent] = []
    /// Whether events have come since some were last taken.
    private var isScheduled = false
    private var waiting: [Done] = []
    /// The callbacks for the events that are being written.
    private var waitingForDisk: [Done] = []
    /// When writing began or, if nothing is being written, the first event began to wait; nil if none waits.
    private var start: MonotonicTime?
    /// How many events were dropped since some were last taken.
    private var lost: UInt64 = 0

    /// How many events wait at most, some 10 MiB; further ones are lost.
    static let limit = 20_000
    /// How long answers wait for a disk.
    static let patience = Nanoseconds(.seconds(5))

    /// - Parameters:
    ///   - isRetried: Whether the events are written again if that fails.
    ///   - done: Nil if nobody waits.
    /// - Returns: Whether the events are the first to be taken, and whether `done` will be called.
    mutating func add(
        _ more: [AuditEvent], isRetried: Bool, _ done: Done?, at now: MonotonicTime
    ) -> (isFirst: Bool, isAwaited: Bool) {
        guard events.count + retried.count + more.count <= Self.limit else {
            lost += UInt64(more.count)
            return (false, false)
        }
        defer { isScheduled = true }
        if isRetried { retried += more } else { events += more }
        start = start ?? now
        if let done { waiting.append(done) }
        return (!isScheduled, done != nil)
    }

    /// Takes all events, to write them.
    mutating func take(at now: MonotonicTime) -> (retried: [AuditEvent], events: [AuditEvent], lost: UInt64) {
        defer { (events, lost, isScheduled, waitingForDisk, waiting, start) = ([], 0, false, waiting, [], now) }
        return (retried, events, lost)
    }

    /// Ends the writing of the events that were taken, and returns the callbacks for them.
    ///
    /// - Parameter count: How many of the first events in `retried` are not written again.
    mutating func finish(removing count: Int, at now: MonotonicTime) -> [Done] {
        retried.removeFirst(count)
        defer { (waitingForDisk, start) = ([], isScheduled ? now : nil) }
        return waitingForDisk
    }

    /// Whether the disk has not answered for too long.
    func isLate(at now: MonotonicTime) -> Bool { start.map { $0 + Self.patience < now } ?? false }

    /// Returns and forgets the callbacks of all who wait; the events stay.
    mutating func giveUp() -> [Done] {
        defer { (waitingForDisk, waiting) = ([], []) }
        return waitingForDisk + waiting
    }
}

/// Events that a client can cause in any number, such as refusals.
///
/// The first event of a client and kind becomes a line at once, and those of the next minute become one line with their count, so
/// that nobody can fill the disk.
///
/// Used by one thread at a time.
struct RepeatedEvents {
    /// The open series, by the fields that their events share.
    private var series: [AuditEvent: Series] = [:]

    private struct Series {
        /// Events that are not in a line yet.
        var count: UInt64
        /// When the last line was written, in microseconds since 1970.
        var writtenAt: Int64
    }

    private static let period: Int64 = 60_000_000
    /// How many series tell clients apart; events of further clients are added up by their kind alone.
    static let limit = 1_000

    /// Whether an event is only counted, as a line of its client and kind was written within the last minute.
    ///
    /// - Parameter event: Without the fields in which events of one client and kind differ.
    mutating func count(_ event: AuditEvent, at now: Int64) -> Bool {
        var event = event
        if series[event] == nil, series.count >= Self.limit {
            (event.address, event.user, event.session) = (nil, nil, nil)
        }
        guard series[event] != nil else {
            series[event] = Series(count: 0, writtenAt: now)
            return false
        }
        series[event]?.count += 1
        return true
    }

    /// The counted events, one for each series.
    ///
    /// - Parameter now: Only series whose last line is a minute old are taken, and those that go on begin anew; nil to take and end
    ///   them all.
    mutating func take(at now: Int64?) -> [AuditEvent] {
        var sums: [AuditEvent] = []
        for (event, series) in series {
            // A negative time means that the clock was set back.
            if let now, (0..<Self.period).contains(now - series.writtenAt) { continue }
            self.series[event] = series.count > 0 ? now.map { Series(count: 0, writtenAt: $0) } : nil
            guard series.count > 0 else { continue }
            var sum = event
            sum.count = series.count
            sums.append(sum)
        }
        return sums
    }
}
