internal import Cryptography

/// Follows a chain line by line, with the key of each period.
///
/// Used by one thread at a time.
struct LineCheck: ~Copyable {
    /// The end of what was accepted.
    private(set) var head: ChainHead
    private(set) var key: ChainKey
    /// The time of the last line that was accepted.
    private(set) var time = ""
    /// Whether the last accepted line was the last one of its period.
    private(set) var isPeriodEnded: Bool
    private var hash: KeyedHash
    private var message: [UInt8] = []
    private var mac: [UInt8] = []

    /// - Parameters:
    ///   - head: What the first line follows.
    ///   - key: That of the first line.
    ///   - isPeriodEnded: Whether the line before the first was the last of its period.
    init(after head: ChainHead, _ key: ChainKey, isPeriodEnded: Bool = false) throws(CryptographyError) {
        self.head = head
        self.key = key
        self.isPeriodEnded = isPeriodEnded
        hash = try KeyedHash(key.macKey())
    }

    /// Goes to the key of the next period; called when the last one has ended.
    mutating func enterNextPeriod() throws(CryptographyError) {
        key = try key.next()
        hash = try KeyedHash(key.macKey())
        isPeriodEnded = false
    }

    /// Goes to the key of a line that follows missing ones, each of which can have been the last of its period.
    mutating func enterPeriod(of line: AuditLine, after missing: ClosedRange<UInt64>) throws(CryptographyError) {
        guard line.period > key.period, line.period - key.period <= missing.upperBound - missing.lowerBound + 1 else {
            return
        }
        while key.period < line.period { try enterNextPeriod() }
    }

    /// Whether a line follows the end with this MAC before it; if so, it is the end from then on.
    ///
    /// Sequence and period are for the caller to look at.
    mutating func accept(
        _ line: AuditLine, _ bytes: ArraySlice<UInt8>, after previous: [UInt8]
    ) throws(CryptographyError) -> Bool {
        message.removeAll(keepingCapacity: true)
        message.append(contentsOf: previous)
        message.append(contentsOf: bytes.prefix(line.coveredCount))
        let covered = message
        try hash.hash(covered.span, into: &mac)
        guard ConstantTime.areEqual(mac.span, line.mac.span) else { return false }
        head = ChainHead(sequence: line.sequence, mac: mac)
        isPeriodEnded = LogEvent.Action(rawValue: line.action)?.endsPeriod ?? false
        time = line.time
        return true
    }
}
