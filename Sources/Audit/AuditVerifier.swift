internal import Cryptography
internal import Glibc
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

    /// Periods that a log may have: at one every 15 minutes, they last for more than a hundred years.
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
        (firstKey, chain, seenHead) = (try key.chainKey(), try key.chainName(), head)
    }

    /// Verifies the next file, in the order in which the server wrote them; does nothing after a fault.
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

    /// Returns what was found in all files; fails if the head comes before their first line, and so was not compared.
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
        guard let line = AuditLine(bytes), line.period < Self.periodLimit else { return refuse(.malformed) }
        var missing: ClosedRange<UInt64>?
        if let expected = check?.head.sequence.advanced(by: 1) {
            if line.sequence < expected { return refuse(.misplaced(expected: expected), line.sequence) }
            if check?.isPeriodEnded == true { try check?.enterNextPeriod() }
            if line.sequence > expected {
                let gap = expected...(line.sequence - 1)
                // Only the line of a start that has found lines missing may follow a missing line.
                guard line.reason == LogEvent.Finding.linesMissing.rawValue, let previous = line.previous else {
                    return refuse(.missing(gap), line.sequence)
                }
                try go(to: line, after: previous)
                missing = gap
            }
        } else if line.sequence == 1, line.period == 0 {
            check = try LineCheck(after: .start, firstKey)
        } else {
            guard line.sequence > 1, let previous = line.previous else { return refuse(.noAnchor, line.sequence) }
            try go(to: line, after: previous)
        }
        guard found.fault == nil, let period = check?.key.period, let previous = check?.head.mac else { return }
        if line.period != period { return refuse(.wrongPeriod(found: line.period, expected: period), line.sequence) }
        guard try check?.accept(line, bytes) == true, line.previous.map({ $0 == previous }) ?? true,
            line.chain.map({ $0 == chain }) ?? true
        else { return refuse(.changed, line.sequence) }
        if let missing {
            found.gaps.append(AuditGap(file: file, line: lineNumber, lines: missing, time: line.time))
        }
        accept(line)
    }

    /// Prepares for an anchor that begins a file in the middle of the chain, or that follows missing lines.
    private mutating func go(to line: AuditLine, after previous: [UInt8]) throws(AuditError) {
        let key = check?.key ?? firstKey
        // Each period has at least one line, its last one.
        let lines = line.sequence - 1 - (check?.head.sequence ?? 0)
        if line.period > key.period, line.period - key.period > lines {
            return refuse(.wrongPeriod(found: line.period, expected: key.period), line.sequence)
        }
        let head = ChainHead(sequence: line.sequence - 1, mac: previous)
        check = try LineCheck(after: head, key.advanced(to: line.period))
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

    private mutating func refuse(_ kind: AuditFault.Kind, _ sequence: UInt64? = nil) {
        found.fault = AuditFault(file: file, line: lineNumber, sequence: sequence, kind: kind)
    }
}

/// The first thing that is wrong in a log.
package struct AuditFault: Hashable, Sendable, CustomStringConvertible {
    package enum Kind: Hashable, Sendable {
        /// The line is not one that a server writes.
        case malformed
        /// The line differs from the one that the server wrote, or another log's key was given.
        case changed
        /// Lines are not where they should be: they were removed or moved.
        case missing(ClosedRange<UInt64>)
        /// The line is a repetition, or belongs further up.
        case misplaced(expected: UInt64)
        /// The line's period does not follow: lines in between were removed, or the line was forged with a later key.
        case wrongPeriod(found: UInt64, expected: UInt64)
        /// The file ends within a line.
        case halfLine
        /// The log ends before the line of the head that was given.
        case cutOff(head: UInt64)
        /// The line is not that of the head that was given.
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

    /// Another reason for lines that are missing before a file.
    private var fileIsMissing: String { line == 1 ? ", or the file that has them was not given" : "" }

    private var reason: String {
        switch kind {
        case .malformed:
            """
            this is not a line of an audit log; it was changed or inserted\(line == 1 ? ", or the file is compressed" : "")
            """
        case .changed: "this line was changed, or the key that was given is not the first key of this log"
        case .missing(let range):
            range.lowerBound == range.upperBound
                ? "line \(range.lowerBound) is missing before this line; it was removed or moved\(fileIsMissing)"
                : """
                lines \(range.lowerBound) to \(range.upperBound) are missing before this line; they were removed or moved\
                \(fileIsMissing)
                """
        case .misplaced(let expected):
            """
            line \(expected) should be here; lines were reordered or duplicated\
            \(line == 1 ? ", or the files were not given with the earliest first" : "")
            """
        case .wrongPeriod(let found, let expected):
            "this line is of period \(found) and should be of period \(expected); lines were removed, or it was forged"
        case .halfLine: "the line is not complete; the file was cut off\(line == 1 ? ", or it is compressed" : "")"
        case .cutOff(let head): "the log ends here, but it had a line \(head); the lines between were removed"
        case .otherHead: "this is not the line that the server's metrics have shown"
        case .noAnchor: "give the earlier files too, as this one does not begin with a start or a rotation"
        }
    }
}

/// Lines that the server itself found and recorded as missing when it started.
package struct AuditGap: Hashable, Sendable, CustomStringConvertible {
    package let file: String
    /// The number of the start's line in the file, from 1.
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
    /// The number that the metrics show for the last line.
    package internal(set) var headNumber: UInt64 = 0
    /// The time of the last line, as written there.
    package internal(set) var lastTime = ""
    package internal(set) var gaps: [AuditGap] = []
    /// The first fault; lines after it were not verified.
    package internal(set) var fault: AuditFault?

    package var isSound: Bool { fault == nil && gaps.isEmpty }
}

/// Reads a file line by line.
struct LineReader: ~Copyable {
    enum Line {
        /// Without its newline.
        case whole(ArraySlice<UInt8>)
        /// The file ends within the line.
        case cut
        /// The line is longer than any of a log; nothing may be read after it.
        case long
    }

    private let path: String
    private let file: FileDescriptor
    private var buffer: [UInt8] = []
    /// Where the next line begins in the buffer.
    private var position = 0
    private var isAtEnd = false

    private static let chunk = 1 << 18

    init(_ path: String) throws(AuditError) {
        self.path = path
        do throws(SystemError) {
            // A named pipe is refused, as it may have no writer; standard input may be a pipe.
            file =
                path == "/dev/stdin"
                ? try FileDescriptor(opening: path, O_RDONLY) : try FileDescriptor(openingFile: path)
        } catch {
            throw .file(path: path, error)
        }
    }

    /// Nil at the end.
    mutating func next() throws(AuditError) -> Line? {
        while true {
            if let end = buffer[position...].firstIndex(of: UInt8(ascii: "\n")) {
                defer { position = end + 1 }
                return end - position > AuditLine.lengthLimit ? .long : .whole(buffer[position..<end])
            }
            let rest = buffer.count - position
            if rest > AuditLine.lengthLimit { return .long }
            if isAtEnd {
                position = buffer.count
                return rest > 0 ? .cut : nil
            }
            buffer.removeFirst(position)
            position = 0
            do throws(SystemError) {
                let more = try BlockingIO.read(from: file.number, limit: Self.chunk)
                isAtEnd = more.isEmpty
                buffer += more
            } catch {
                throw .file(path: path, error)
            }
        }
    }
}

/// Follows a chain line by line, with the key of each period.
///
/// Used by one thread at a time.
struct LineCheck: ~Copyable {
    /// The end of what was accepted.
    private(set) var head: ChainHead
    private(set) var key: ChainKey
    /// Whether the last accepted line was the last one of its period.
    private(set) var isPeriodEnded = false
    private var hash: KeyedHash

    /// - Parameters:
    ///   - head: What the first line follows.
    ///   - key: The key of the first line.
    init(after head: ChainHead, _ key: ChainKey) throws(AuditError) {
        (self.head, self.key) = (head, key)
        hash = try key.lineHash()
    }

    /// Goes to the key of the next period; called when the last one has ended.
    mutating func enterNextPeriod() throws(AuditError) {
        key = try key.next()
        hash = try key.lineHash()
        isPeriodEnded = false
    }

    /// Returns whether a line follows the end, and if so makes it the new end.
    ///
    /// The caller compares sequence and period.
    mutating func accept(_ line: AuditLine, _ bytes: ArraySlice<UInt8>) throws(AuditError) -> Bool {
        let covered = head.mac + bytes.prefix(line.coveredCount)
        let mac = try hash.mac(of: covered.span)
        guard ConstantTime.areEqual(mac.span, line.mac.span) else { return false }
        head = ChainHead(sequence: line.sequence, mac: line.mac)
        isPeriodEnded = LogEvent.Action(rawValue: line.action)?.endsPeriod ?? false
        return true
    }
}
