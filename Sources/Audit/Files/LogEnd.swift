internal import Cryptography

/// Where a chain goes on at a start, by the end of its file and what the server remembers of it.
struct LogEnd {
    /// What the next line follows.
    let head: ChainHead
    /// The key of the next line.
    let key: ChainKey
    let finding: LogEvent.Finding
    /// Bytes of a line without an end, which were cut off.
    let removedBytes: Int

    /// Examines a file and cuts off half a line at its end.
    ///
    /// - Parameters:
    ///   - file: The log's file.
    ///   - running: The running key and the chain's end at the beginning of its period.
    ///   - saved: The chain's end as it was saved last; nil if that is not known.
    init(of file: AuditFile, _ running: RunningKey, saved: HeadFile.Place?) throws(AuditError) {
        var known = HeadFile.Place(head: running.head, period: running.chainKey.period)
        // Only a later one counts: the head is not synced, the running key is.
        if let saved, saved.head.sequence > running.head.sequence, saved.period >= running.chainKey.period,
            saved.period - running.chainKey.period < Self.periodLimit
        {
            known = saved
        }
        let tail = LogTail(file)
        try tail.checkOrigin(chain: running.chain)
        removedBytes = try tail.cutHalfLine()
        let knownKey = try Self.key(of: known.period, from: running.chainKey)
        guard file.size > 0 else {
            (head, key) = (known.head, knownKey)
            finding = known.head.sequence == 0 ? .newChain : .newFile
            return
        }
        guard let last = try tail.lastLine() else {
            (head, key, finding) = (known.head, knownKey, .linesChanged)
            return
        }
        if last.sequence == known.head.sequence {
            (head, key) = (known.head, knownKey)
            finding = (last.mac == known.head.mac) ? .unaltered : .linesChanged
        } else if last.sequence < known.head.sequence {
            (head, key, finding) = (known.head, knownKey, .linesMissing)
        } else {
            // A power cut has lost the newer end that was saved, but not the lines.
            let end = try Self.follow(tail, from: known.head, knownKey)
            (head, key) = (end.head, end.key)
            finding = end.head.sequence == last.sequence ? .unaltered : .linesChanged
        }
    }

    /// How many periods the saved end can be ahead of the running key, which is replaced in each.
    private static let periodLimit: UInt64 = 1_000

    private static func key(of period: UInt64, from key: ChainKey) throws(AuditError) -> ChainKey {
        do throws(CryptographyError) {
            var key = key
            while key.period < period { key = try key.next() }
            return key
        } catch {
            throw .library(error)
        }
    }

    /// Accepts lines from an end on, until one does not follow.
    private static func follow(
        _ tail: LogTail, from head: ChainHead, _ key: ChainKey
    ) throws(AuditError) -> (head: ChainHead, key: ChainKey) {
        let bytes = try tail.bytes(after: head.sequence)
        do throws(CryptographyError) {
            var check = try LineCheck(after: head, key)
            for text in bytes.split(separator: UInt8(ascii: "\n")) {
                guard let line = AuditLine(text) else { break }
                if line.sequence <= head.sequence { continue }
                guard line.sequence == check.head.sequence + 1, line.period == check.key.period,
                    try check.accept(line, text, after: check.head.mac)
                else { break }
                if check.isPeriodEnded { try check.enterNextPeriod() }
            }
            return (check.head, check.key)
        } catch {
            throw .library(error)
        }
    }
}
