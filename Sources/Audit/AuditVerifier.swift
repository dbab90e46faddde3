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
        (firstKey, chain, seenHead) = (try key.chainKey(), try key.chainName(), head)
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
        guard let line = AuditLine(bytes), line.period < Self.periodLimit else { return refuse(.malformed) }
        var missing: ClosedRange<UInt64>?
        if let expected = check?.head.sequence.advanced(by: 1) {
            if line.sequence < expected { return refuse(.misplaced(expected: expected), line.sequence) }
            if check?.isPeriodEnded == true { try check?.enterNextPeriod() }
            if line.sequence > expected {
                let gap = expected...(line.sequence - 1)
                // Only a start that has found lines missing follows a line that is not there.
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

    /// Prepares for an anchor that begins a file in the chain's midst, or follows missing lines.
    private mutating func go(to line: AuditLine, after previous: [UInt8]) throws(AuditError) {
        var key = check?.key ?? firstKey
        // Each period has a line, its last one.
        let lines = line.sequence - 1 - (check?.head.sequence ?? 0)
        if line.period > key.period, line.period - key.period > lines {
            return refuse(.wrongPeriod(found: line.period, expected: key.period), line.sequence)
        }
        while key.period < line.period { key = try key.next() }
        check = try LineCheck(after: ChainHead(sequence: line.sequence - 1, mac: previous), key)
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
        case .malformed:
            """
            this is not a line of an audit log; it was changed or inserted\(line == 1 ? ", or the file is compressed" : "")
            """
        case .changed: "this line was changed, or it is not the first key of this log"
        case .missing(let range):
            range.lowerBound == range.upperBound
                ? "before it line \(range.lowerBound) is missing; it was removed or moved\(fileIsMissing)"
                : """
                before it lines \(range.lowerBound) to \(range.upperBound) are missing; they were removed or moved\
                \(fileIsMissing)
                """
        case .misplaced(let expected):
            """
            line \(expected) should be here; lines were reordered or duplicated\
            \(line == 1 ? ", or the files were not given with the earliest first" : "")
            """
        case .wrongPeriod(let found, let expected):
            "it is of period \(found) and should be of period \(expected); lines were removed, or it was forged"
        case .halfLine: "the line is not complete; the file was cut off\(line == 1 ? ", or it is compressed" : "")"
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

/// Reads a file line by line.
struct LineReader: ~Copyable {
    enum Line {
        /// Without its newline.
        case whole(ArraySlice<UInt8>)
        /// The file ends in it.
        case cut
        /// Longer than any line of a log; the reader ends there.
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
            // A pipe by name may have no writer to wait for; standard input may be one.
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
    ///   - key: That of the first line.
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

    /// Whether a line follows the end; if so, it is the end from then on.
    ///
    /// Sequence and period are for the caller to look at.
    mutating func accept(_ line: AuditLine, _ bytes: ArraySlice<UInt8>) throws(AuditError) -> Bool {
        let covered = head.mac + bytes.prefix(line.coveredCount)
        let mac = try hash.mac(of: covered.span)
        guard ConstantTime.areEqual(mac.span, line.mac.span) else { return false }
        head = ChainHead(sequence: line.sequence, mac: line.mac)
        isPeriodEnded = LogEvent.Action(rawValue: line.action)?.endsPeriod ?? false
        return true
    }
}
