import Cryptography
import Glibc
import System

/// Verifies the files of a log with its first key.
///
/// Reads each file once and keeps one line in memory, so that a file can have any size. Used by one thread at a time.
package struct AuditVerifier: ~Copyable {
    /// A chain's end that was seen elsewhere, such as in the metrics.
    package struct Head: Sendable {
        package let sequence: UInt64
        /// The first 48 bits of the line's MAC.
        let number: UInt64

        package init(sequence: UInt64, number: UInt64) {
            self.sequence = sequence
            self.number = number
        }
    }

    private let chain: String
    private let seenHead: Head?
    /// What the next line follows.
    private var end = ChainEnd.start
    /// The key of the next line, and what makes the line's MAC with it.
    private var key: ChainKey
    private var hash: KeyedHash
    private var found = AuditVerification()
    /// Where the last line was.
    private var (file, lineNumber) = ("", 0)

    package init(_ firstKey: AuditFirstKey, head: Head? = nil) {
        let key = firstKey.chainKey()
        (chain, self.key, hash, seenHead) = (firstKey.chainName(), key, key.lineHash(), head)
    }

    /// Verifies the next file, in the order in which the server wrote them; does nothing after a fault.
    package mutating func read(_ path: String) throws(AuditError) {
        guard found.fault == nil else { return }
        var reader = try LineReader(path)
        (file, lineNumber) = (path, 0)
        while found.fault == nil, let line = try reader.next() {
            lineNumber += 1
            verify(line)
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

    private mutating func verify(_ bytes: ArraySlice<UInt8>) {
        guard let line = AuditLine(bytes) else { return refuse(.malformed) }
        let (sequence, expected) = (line.end.sequence, end.sequence + 1)
        if sequence < expected { return refuse(.misplaced(expected: expected), sequence) }
        var missing: ClosedRange<UInt64>?
        if sequence > expected {
            let gap = expected...(sequence - 1)
            let isFirst = found.lines == nil
            // An anchor may begin the files in the middle of the chain. After other lines, only the line of a start that has found
            // lines missing may follow a missing line.
            guard let previous = line.previous,
                isFirst || line.reason == LogEvent.Finding.linesMissing.rawValue
            else { return refuse(isFirst ? .noAnchor : .missing(gap), sequence) }
            if !isFirst { missing = gap }
            // Each period has at least one line, its last one, so keys are not made for more periods than there are lines.
            guard line.period <= key.period + (sequence - expected) else { return refuse(.changed, sequence) }
            go(to: ChainEnd(sequence: sequence - 1, mac: previous, period: line.period))
        }
        guard line.period == key.period, line.isAuthentic(after: end.mac, hash),
            line.previous.map({ $0 == end.mac }) ?? true, line.chain.map({ $0 == chain }) ?? true
        else { return refuse(.changed, sequence) }
        if let missing {
            found.gaps.append(AuditGap(file: file, line: lineNumber, lines: missing, time: line.time))
        }
        accept(line)
    }

    /// Continues behind an end, with the key of the line that follows it.
    private mutating func go(to end: ChainEnd) {
        self.end = end
        guard end.period > key.period else { return }
        key = key.advanced(to: end.period)
        hash = key.lineHash()
    }

    private mutating func accept(_ line: AuditLine) {
        go(to: line.end)
        found.lines = (found.lines?.lowerBound ?? end.sequence)...end.sequence
        found.lastTime = line.time
        found.headNumber = end.number
        if let seenHead, seenHead.sequence == end.sequence, seenHead.number != end.number {
            refuse(.otherHead, end.sequence)
        }
    }

    private mutating func refuse(_ kind: AuditFault.Kind, _ sequence: UInt64? = nil) {
        found.fault = AuditFault(file: file, line: lineNumber, sequence: sequence, kind: kind)
    }
}

/// The first thing that is wrong in a log.
package struct AuditFault: Hashable, Sendable, CustomStringConvertible {
    package enum Kind: Hashable, Sendable {
        /// The line is not one that a server writes, or is not complete.
        case malformed
        /// The line differs from the one that the server wrote, or another log's key was given.
        case changed
        /// Lines are not where they should be: they were removed or moved.
        case missing(ClosedRange<UInt64>)
        /// The line is a repetition, or belongs further up.
        case misplaced(expected: UInt64)
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
    let sequence: UInt64?
    package let kind: Kind

    package var description: String {
        "\(file), line \(line)\(sequence.map { " (sequence number \($0))" } ?? ""): \(reason)"
    }

    /// Another reason for lines that are missing before a file.
    private var fileIsMissing: String { line == 1 ? ", or the file that has them was not given" : "" }

    /// Why a new file may use line numbers again: the start that began it knew only the end that had been saved.
    private static let lateStart = """
        if a crash and then a rotation came before this file, the start that began it may not have known the last lines of the \
        file before: verify it and the later files without the earlier ones
        """

    private var reason: String {
        switch kind {
        case .malformed:
            """
            this is not a line of an audit log; it was changed, inserted or cut off\
            \(line == 1 ? ", or the file is compressed" : "")
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
            \(line == 1 ? ", or the files were not given with the earliest first; \(Self.lateStart)" : "")
            """
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
    let time: String

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
            // A named pipe is refused, as it may have no writer. Standard input may be one, or a file that this user may not open.
            if path == "/dev/stdin" {
                let number = dup(STDIN_FILENO)
                guard number >= 0 else { throw SystemError.last("dup") }
                file = FileDescriptor(owning: number)
            } else {
                file = try FileDescriptor(openingFile: path)
            }
        } catch {
            throw .file(path: path, error)
        }
    }

    /// The next line without its newline, or the beginning of a line that is longer than any of a log; nil at the end.
    mutating func next() throws(AuditError) -> ArraySlice<UInt8>? {
        while true {
            let rest = buffer[position...]
            let end = rest.firstIndex(of: UInt8(ascii: "\n"))
            if end != nil || isAtEnd || rest.count > AuditLine.lengthLimit {
                position = end.map { $0 + 1 } ?? buffer.count
                return end == nil && rest.isEmpty ? nil : rest[..<(end ?? buffer.count)]
            }
            buffer.removeFirst(position)
            position = 0
            do {
                let more = try BlockingIO.read(from: file.number, limit: Self.chunk)
                isAtEnd = more.isEmpty
                buffer += more
            } catch {
                throw .file(path: path, error)
            }
        }
    }
}
