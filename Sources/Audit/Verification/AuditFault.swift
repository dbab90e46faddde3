/// The first thing that is wrong in a log.
package struct AuditFault: Hashable, Sendable, CustomStringConvertible {
    package enum Kind: Hashable, Sendable {
        /// The line is not as any server writes it.
        case malformed
        /// The line has other bytes than the server wrote, or another key was given.
        case changed
        /// Lines are not where they should be: removed, or put elsewhere.
        case missing(ClosedRange<UInt64>)
        /// A line that came before, or that belongs further up.
        case misplaced(expected: UInt64)
        /// The line is of a period that does not follow: the lines between were removed, or it was forged with a later key.
        case wrongPeriod(found: UInt64, expected: UInt64)
        /// The file's last line has no end.
        case halfLine
        /// The log ends before the line that it had as its last one elsewhere.
        case cutOff(head: UInt64)
        /// The line is not the one that was the last one elsewhere.
        case otherHead
        /// The first line does not say what it follows, and earlier files were not given.
        case noAnchor
    }

    package let file: String
    /// From 1.
    package let line: Int
    /// The line's sequence number; nil if it has none.
    package let sequence: UInt64?
    package let kind: Kind

    package var description: String {
        "\(file), line \(line)\(sequence.map { " (sequence number \($0))" } ?? ""): \(reason)"
    }

    /// For lines that are missing before a file.
    private var fileIsMissing: String { line == 1 ? ", or the file that has them was not given" : "" }

    private var reason: String {
        switch kind {
        case .malformed: "this is no line of an audit log; it was changed or put there"
        case .changed: "this line was changed, or it is not the first key of this log"
        case .missing(let range):
            range.count == 1
                ? "before it line \(range.lowerBound) is missing; it was removed or moved\(fileIsMissing)"
                : """
                before it lines \(range.lowerBound) to \(range.upperBound) are missing; they were removed or moved\
                \(fileIsMissing)
                """
        case .misplaced(let expected): "line \(expected) should be here; lines were reordered or duplicated"
        case .wrongPeriod(let found, let expected):
            "it is of period \(found) and should be of period \(expected); lines were removed, or it was forged"
        case .halfLine: "the line is not complete; the file was cut off"
        case .cutOff(let head): "the log ends here, but it had a line \(head); the lines between were removed"
        case .otherHead: "this is not the line that the server's metrics have shown"
        case .noAnchor: "give the earlier files too, as this one does not begin with a start or a rotation"
        }
    }
}

/// Lines that the server found missing itself, at a start, and recorded as missing.
package struct AuditGap: Hashable, Sendable, CustomStringConvertible {
    package let file: String
    /// Of the start's line, from 1.
    package let line: Int
    package let lines: ClosedRange<UInt64>
    package let time: String

    package var description: String {
        """
        \(file), line \(line): lines \(lines.lowerBound) to \(lines.upperBound) were missing when the server started at \
        \(time), by its own record: lost in a power cut, or removed
        """
    }
}

/// What a verification has found.
package struct AuditVerification: Sendable {
    /// Sequence numbers of the lines that were verified; nil if there is none.
    package internal(set) var lines: ClosedRange<UInt64>?
    /// The number that metrics show for the last line.
    package internal(set) var headNumber: UInt64 = 0
    /// The time of the last line, as it stands there.
    package internal(set) var lastTime = ""
    package internal(set) var gaps: [AuditGap] = []
    /// The first fault; what comes after it was not verified.
    package internal(set) var fault: AuditFault?

    package var isSound: Bool { fault == nil && gaps.isEmpty }
}
