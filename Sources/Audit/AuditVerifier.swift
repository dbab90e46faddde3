internal import Cryptography
internal import System

/// Verifies the files of a log with its first key.
///
/// Reads each file once and keeps one line in memory, so that a file can have any size. Used by one thread at a time.
package struct AuditVerifier: ~Copyable {
    /// A chain's end that was seen elsewhere, such as in the metrics.
    package struct Head: Sendable {
        package let sequence: UInt64
        /// The first 48 bits of the line's MAC.
        package let number: UInt64

        package init(sequence: UInt64, number: UInt64) {
            self.sequence = sequence
            self.number = number
        }
    }

    /// A server that changes its key every 15 minutes needs more than a hundred years for so many.
    private static let periodLimit: UInt64 = 4_000_000

    private let firstKey: ChainKey
    private let chain: String
    private let seenHead: Head?
    /// Nil before the first line.
    private var check: LineCheck?
    private var found = AuditVerification()
    /// Where the last line was.
    private var (file, lineNumber) = ("", 0)

    package init(_ key: AuditFirstKey, head: Head? = nil) throws(AuditError) {
        let (firstKey, chain): (ChainKey, String)
        do throws(CryptographyError) {
            (firstKey, chain) = (try key.chainKey(), try key.chainName())
        } catch {
            throw .library(error)
        }
        (self.firstKey, self.chain, seenHead) = (firstKey, chain, head)
    }

    /// Goes on with a file, in the order in which the server wrote them; without effect after a fault.
    package mutating func read(_ path: String) throws(AuditError) {
        guard found.fault == nil else { return }
        var reader = try LineReader(path)
        (file, lineNumber) = (path, 0)
        while found.fault == nil, let line = try reader.next() {
            lineNumber += 1
            switch line {
            case .whole(let bytes): try verify(bytes)
            case .cut: refuse(.halfLine)
            case .long: refuse(.malformed)
            }
        }
    }

    /// What was found in all files; fails if the line of the head is before their first one, where nobody has looked.
    package consuming func finish() throws(AuditError) -> AuditVerification {
        guard let seenHead, found.fault == nil else { return found }
        if let lines = found.lines, seenHead.sequence < lines.lowerBound {
            throw .headInEarlierFile(head: seenHead.sequence, first: lines.lowerBound)
        }
        let last = found.lines?.upperBound ?? 0
        if last < seenHead.sequence { refuse(.cutOff(head: seenHead.sequence), last > 0 ? last : nil) }
        return found
    }

    // MARK: - Lines

    private mutating func verify(_ bytes: ArraySlice<UInt8>) throws(AuditError) {
        guard let line = AuditLine(bytes) else { return refuse(.malformed) }
        do throws(CryptographyError) {
            if check == nil { try begin(with: line) }
            guard found.fault == nil, let expected = check?.head.sequence.advanced(by: 1) else { return }
            if line.sequence < expected { return refuse(.misplaced(expected: expected), line.sequence) }
            if check?.isPeriodEnded == true { try check?.enterNextPeriod() }
            let missing = line.sequence > expected ? expected...(line.sequence - 1) : nil
            if let missing {
                guard line.reason == LogEvent.Finding.linesMissing.rawValue else {
                    return refuse(.missing(missing), line.sequence)
                }
                if line.period < Self.periodLimit { try check?.enterPeriod(of: line, after: missing) }
            }
            if let period = check?.key.period, line.period != period {
                return refuse(.wrongPeriod(found: line.period, expected: period), line.sequence)
            }
            // Only a start that has found lines missing follows a line that is not there.
            guard let previous = missing != nil ? line.previous : check?.head.mac,
                try check?.accept(line, bytes, after: previous) == true,
                line.previous.map({ $0 == previous }) ?? true, line.chain.map({ $0 == chain }) ?? true
            else { return refuse(.changed, line.sequence) }
            if let missing {
                found.gaps.append(AuditGap(file: file, line: lineNumber, lines: missing, time: line.time))
            }
        } catch {
            throw .library(error)
        }
        accept(line)
    }

    private mutating func accept(_ line: AuditLine) {
        found.lines = (found.lines?.lowerBound ?? line.sequence)...line.sequence
        found.lastTime = line.time
        let head = ChainHead(sequence: line.sequence, mac: line.mac)
        found.headNumber = head.number
        if let seenHead, seenHead.sequence == head.sequence, seenHead.number != head.number {
            refuse(.otherHead, line.sequence)
        }
    }

    /// Prepares for the first line of all: that of the chain, or that of a file in its midst.
    private mutating func begin(with line: AuditLine) throws(CryptographyError) {
        guard line.sequence > 1 || line.period > 0 else {
            check = try LineCheck(after: .start, firstKey)
            return
        }
        guard let previous = line.previous else { return refuse(.noAnchor, line.sequence) }
        guard line.sequence > 1, line.period < Self.periodLimit else { return refuse(.malformed, line.sequence) }
        var key = firstKey
        while key.period < line.period { key = try key.next() }
        check = try LineCheck(after: ChainHead(sequence: line.sequence - 1, mac: previous), key)
    }

    private mutating func refuse(_ kind: AuditFault.Kind, _ sequence: UInt64? = nil) {
        found.fault = AuditFault(file: file, line: lineNumber, sequence: sequence, kind: kind)
    }
}

/// The order in which files of a log were written, by the sequence numbers of their first lines, which nobody has verified.
package enum FileOrder {
    /// Fails if files that do not verify are probably given in the wrong order.
    ///
    /// - Parameter paths: Files that can be read again, in the order in which they were given.
    package static func check(_ paths: [String]) throws(AuditError) {
        var starts: [(path: String, sequence: UInt64)] = []
        for path in paths {
            var reader = try LineReader(path)
            // What is no line of a log has no place in an order.
            guard case .whole(let bytes) = try reader.next(), let line = AuditLine(bytes) else { return }
            starts.append((path, line.sequence))
        }
        let sorted = starts.sorted { $0.sequence < $1.sequence }.map(\.path)
        guard Set(starts.map(\.sequence)).count == paths.count, sorted != paths else { return }
        throw .order(sorted)
    }
}

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
        case .malformed: "this is not a line of an audit log; it was changed or inserted"
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
