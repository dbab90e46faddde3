/// The audit log in numbers.
package struct AuditFigures: Sendable {
    /// The sequence number of the last line.
    package var sequence: UInt64 = 0
    /// The first 48 bits of the last line's MAC, as a number: metrics have no texts, and represent this one exactly.
    package var headNumber: UInt64 = 0
    /// Since the start.
    package var lines: UInt64 = 0
    /// Calls that could not write their lines, since the start.
    package var failures: UInt64 = 0
    /// Whether lines cannot be written at present.
    package var isFailing = false

    package init() {}

    mutating func setHead(_ head: borrowing ChainHead) {
        sequence = head.sequence
        headNumber = head.number
    }
}

extension ChainHead {
    /// The first 48 bits of the MAC.
    var number: UInt64 { mac.prefix(6).reduce(0) { $0 << 8 | UInt64($1) } }
}
