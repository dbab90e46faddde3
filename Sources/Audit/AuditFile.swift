import Cryptography
import Glibc
import Synchronization
import System

/// A file of the log, open for appending whole lines.
///
/// One thread at a time appends; any thread synchronizes.
final class AuditFile: Sendable {
    let path: String
    private let descriptor: FileDescriptor
    /// How many bytes at the end belong to an incomplete line that has not been cut off yet.
    private let tornBytes = Atomic<Int>(0)

    /// Opens a file, and creates it (mode 0640) if it does not exist.
    ///
    /// - Parameter locks: Whether other processes are kept from writing to it.
    init(_ path: String, locks: Bool = true) throws(AuditError) {
        self.path = path
        do {
            descriptor = try FileDescriptor(openingOrCreating: path, O_RDWR | O_APPEND, mode: 0o640)
            // An empty file may have just been created.
            if locks, try FileStatus.read(descriptor.number).size == 0 { try Folder.synchronize(Path.folder(of: path)) }
        } catch {
            throw .file(path: path, error)
        }
        // Two servers would break each other's chain. On a file system without locks the file is used without one.
        guard !locks || flock(descriptor.number, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK else {
            throw .inUse(path: path)
        }
    }

    deinit {
        // A child process that is just starting may still have a copy of the descriptor, which would keep the lock.
        _ = flock(descriptor.number, LOCK_UN)
    }

    /// In bytes.
    var size: Int { (try? FileStatus.read(descriptor.number))?.size ?? 0 }

    /// Whether a path leads to this file.
    func isAt(_ path: String) -> Bool {
        guard let own = try? FileStatus.read(descriptor.number), let found = FileStatus(path) else { return false }
        return own.identity == found.identity
    }

    /// Whether the file was deleted, so that what is written to it is lost.
    var isRemoved: Bool { (try? FileStatus.read(descriptor.number))?.isRemoved == true }

    /// Gives up the room of a removed file, which the disk otherwise takes back only when the file is closed.
    func empty() { try? BlockingIO.truncate(descriptor.number, to: 0) }

    func read(at offset: Int, count: Int) throws(AuditError) -> [UInt8] {
        do {
            return try BlockingIO.read(from: descriptor.number, at: offset, count: count)
        } catch {
            throw .file(path: path, error)
        }
    }

    /// Appends lines in one call, all of them or none.
    func append(_ lines: Span<UInt8>) throws(AuditError) {
        try cutTornBytes()
        let count = unsafe lines.withUnsafeBufferPointer { lines in
            retryingInterrupts { unsafe write(descriptor.number, lines.baseAddress, lines.count) }
        }
        guard count >= 0 else { throw .file(path: path, SystemError.last("write")) }
        guard count < lines.count else { return }
        tornBytes.store(count, ordering: .relaxed)
        try cutTornBytes()
        throw .full(path: path)
    }

    /// Cuts off the incomplete line that a failed call or a crash has left, if there is one.
    func cutTornBytes() throws(AuditError) {
        let count = tornBytes.load(ordering: .relaxed)
        guard count > 0 else { return }
        // By the current size, as the file may have been emptied in between.
        let size = size
        do {
            try BlockingIO.truncate(descriptor.number, to: max(0, size - count))
        } catch {
            throw .torn(path: path, error)
        }
        tornBytes.store(0, ordering: .relaxed)
    }

    /// Waits until the lines so far are on the disk.
    func synchronize() throws(AuditError) {
        do {
            try BlockingIO.synchronizeData(descriptor.number)
        } catch {
            throw .file(path: path, error)
        }
    }
}

/// Where a chain continues at a start, according to the end of its file and to what the server has saved about it.
struct LogEnd {
    let end: ChainEnd
    /// The key of the next line.
    let key: ChainKey
    let finding: LogEvent.Finding
    /// Bytes of an incomplete line, which the next line's `append` cuts off.
    let removedBytes: Int

    /// By how many periods the saved running key may be behind at a start.
    ///
    /// So many periods take years, and their keys are made in a second.
    static let periodLimit: UInt64 = 100_000

    /// Finds the latest end that is known.
    ///
    /// A power cut may have lost the newest of what was saved, or of the lines. Only the last line's MAC is checked: whether the lines
    /// before it are as they were written is what the verifier finds out.
    ///
    /// - Parameters:
    ///   - file: The log's file.
    ///   - running: The running key, with the chain's end when the period or the file began.
    ///   - saved: The chain's end as it was saved last; nil if that is not known.
    init(of file: AuditFile, _ running: RunningKey, saved: ChainEnd?) throws(AuditError) {
        var latest = running.end
        func isLatest(_ end: ChainEnd) -> Bool {
            // Each period has at least one line, its last one, so keys are not made for more periods than there are lines.
            (end.sequence > latest.sequence || end == latest) && end.period >= running.end.period
                && end.period - running.end.period <= min(Self.periodLimit, end.sequence - running.end.sequence)
        }
        func isAuthentic(_ line: AuditLine, after before: AuditLine?) -> Bool {
            // The key of the line that the running key follows may be gone.
            if line.end == running.end { return true }
            // An anchor may follow lines that are missing, and so not the line before it.
            let previous = line.previous ?? before?.end.mac ?? running.end.mac
            return line.isAuthentic(after: previous, running.chainKey.advanced(to: line.period).lineHash())
        }
        if let saved, isLatest(saved) { latest = saved }
        try file.checkOrigin(chain: running.chain)
        let (before, last, tornBytes) = try file.readEnd()
        if file.size == tornBytes {
            finding = latest.sequence == 0 ? .newChain : .newFile
        } else if let last, isLatest(last.end), isAuthentic(last, after: before) {
            latest = last.end
            finding = .unaltered
        } else {
            finding = .linesMissing
        }
        removedBytes = tornBytes
        end = latest
        key = running.chainKey.advanced(to: latest.period)
    }
}

/// Reads the beginning and the end of a file of any size.
extension AuditFile {
    /// Bytes that are read at once.
    private static let window = 1 << 20
    private static let newline = UInt8(ascii: "\n")

    /// Refuses a file that is not an audit log or belongs to another chain; called before the file is changed.
    func checkOrigin(chain: String) throws(AuditError) {
        let start = try read(at: 0, count: AuditLine.lengthLimit + 1)
        guard !start.isEmpty else { return }
        guard let end = start.firstIndex(of: Self.newline) else {
            // A crash may have left the very first line incomplete.
            let beginning = Array(#"{"sequence":"#.utf8)
            guard start.count <= AuditLine.lengthLimit, start.prefix(beginning.count).elementsEqual(beginning) else {
                throw .foreign(path: path)
            }
            return
        }
        guard let line = AuditLine(start[..<end]) else { throw .foreign(path: path) }
        // A file that was emptied while the server wrote to it does not begin with the chain's name.
        guard line.chain == nil || line.chain == chain else { throw .ofAnotherChain(path: path) }
    }

    /// The last two lines, and how many bytes of an incomplete line follow them, which the next `append` cuts off.
    ///
    /// A line is nil if it is missing or cannot be read.
    func readEnd() throws(AuditError) -> (before: AuditLine?, last: AuditLine?, tornBytes: Int) {
        let size = size
        // `end` is the place behind the last newline. The search goes piece by piece, because what follows that may be of any length.
        var (end, start) = (0, size)
        while end == 0, start > 0 {
            let piece = max(0, start - Self.window)..<start
            if let index = try read(at: piece.lowerBound, count: piece.count).lastIndex(of: Self.newline) {
                end = piece.lowerBound + index + 1
            }
            start = piece.lowerBound
        }
        tornBytes.store(size - end, ordering: .relaxed)
        let count = min(end, 2 * (AuditLine.lengthLimit + 1))
        let lines = try read(at: end - count, count: count).dropLast()
            .split(separator: Self.newline, omittingEmptySubsequences: false)
        return (lines.dropLast().last.flatMap(AuditLine.init), lines.last.flatMap(AuditLine.init), size - end)
    }
}
