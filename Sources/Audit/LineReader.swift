internal import Cryptography
internal import Glibc
internal import System

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
    private var isAtBeginning = true

    private static let chunk = 1 << 18
    /// The first bytes of compressed files, which begin no line, and the program that unpacks them.
    private static let compressions: [(bytes: [UInt8], program: String)] = [
        ([0x1f, 0x8b], "gzip"), ([0xfd, 0x37, 0x7a, 0x58], "xz"), ([0x28, 0xb5, 0x2f, 0xfd], "zstd"),
        ([0x42, 0x5a, 0x68], "bzip2"),
    ]

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
            // logrotate compresses earlier files.
            if isAtBeginning, let found = Self.compressions.first(where: { buffer.starts(with: $0.bytes) }) {
                throw .compressed(path: path, program: found.program)
            }
            isAtBeginning = buffer.isEmpty
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
