internal import Cryptography
internal import Glibc
internal import Synchronization
internal import System

/// A file of the log, open for appending whole lines.
///
/// One thread at a time appends; any thread synchronizes.
final class AuditFile: Sendable {
    let path: String
    private let descriptor: FileDescriptor
    /// How many bytes at the end belong to an incomplete line that could not be cut off yet.
    private let tornBytes = Atomic<Int>(0)

    /// Opens a file, and creates it (mode 0640) if it does not exist.
    ///
    /// - Parameter locks: Whether other processes are kept from writing to it.
    init(_ path: String, locks: Bool = true) throws(AuditError) {
        self.path = path
        do throws(SystemError) {
            descriptor = try Self.open(path)
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

    private static func open(_ path: String) throws(SystemError) -> FileDescriptor {
        let flags = O_RDWR | O_APPEND
        do throws(SystemError) {
            // O_EXCL does not follow a dangling link, with which another user who may write to the folder could make us
            // create a file anywhere.
            let file = try FileDescriptor(opening: path, flags | O_CREAT | O_EXCL, mode: 0o640)
            // Otherwise the server's user could not open a file that a command of root has made.
            file.adoptOwner(of: Path.folder(of: path))
            try Folder.synchronize(Path.folder(of: path))
            return file
        } catch {
            guard error.code == EEXIST else { throw error }
        }
        return try FileDescriptor(openingFile: path, flags)
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

    func read(at offset: Int, count: Int) throws(AuditError) -> [UInt8] {
        do throws(SystemError) {
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

    /// Cuts off the incomplete line that a failed call has left, if there is one.
    func cutTornBytes() throws(AuditError) {
        let count = tornBytes.load(ordering: .relaxed)
        guard count > 0 else { return }
        // By the current size, as the file may have been emptied in between.
        let size = size
        do throws(SystemError) {
            try BlockingIO.truncate(descriptor.number, to: max(0, size - count))
        } catch {
            throw .torn(path: path, error)
        }
        tornBytes.store(0, ordering: .relaxed)
    }

    /// Waits until the lines so far are on the disk.
    func synchronize() throws(AuditError) {
        do throws(SystemError) {
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
    /// Bytes of an incomplete line, which were cut off.
    let removedBytes: Int

    /// Finds the latest end that is known, and cuts off an incomplete line at the end of the file.
    ///
    /// A power cut may have lost the newest of what was saved, or of the lines. Only the last line's MAC is checked: whether the lines
    /// before it are as they were written is what the verifier finds out.
    ///
    /// - Parameters:
    ///   - file: The log's file.
    ///   - running: The running key; its head is the chain's end when the period or the file began.
    ///   - saved: The chain's end as it was saved last; nil if that is not known.
    init(of file: AuditFile, _ running: RunningKey, saved: ChainEnd?) throws(AuditError) {
        var latest = ChainEnd(head: running.head, period: running.chainKey.period)
        func isLatest(_ end: ChainEnd) -> Bool {
            (end.head.sequence > latest.head.sequence || end.head == latest.head)
                && end.period >= running.chainKey.period
                // Each period has at least one line, its last one, so keys are not made for more periods than there are lines.
                && end.period - running.chainKey.period <= end.head.sequence - running.head.sequence
        }
        func isAuthentic(_ line: AuditLine, after before: AuditLine?) throws(AuditError) -> Bool {
            // The key of the line that the running key follows may be gone.
            if line.end.head == running.head { return true }
            // An anchor may follow lines that are missing, and so not the line before it.
            let previous = line.previous ?? before?.mac ?? running.head.mac
            return try line.isAuthentic(after: previous, running.chainKey.advanced(to: line.period).lineHash())
        }
        if let saved, isLatest(saved) { latest = saved }
        try file.checkOrigin(chain: running.chain)
        removedBytes = try file.cutHalfLine()
        if file.size == 0 {
            finding = latest.head.sequence == 0 ? .newChain : .newFile
        } else {
            let (before, last) = try file.lastLines()
            if let last, isLatest(last.end), try isAuthentic(last, after: before) {
                // Also if the line was known: a process that dies while a period ends may not have saved the next period.
                latest = last.end
                finding = .unaltered
            } else {
                finding = .linesMissing
            }
        }
        end = latest
        key = try running.chainKey.advanced(to: latest.period)
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

    /// Cuts off what follows the last newline.
    ///
    /// - Returns: How many bytes were cut off.
    func cutHalfLine() throws(AuditError) -> Int {
        let size = size
        let end = try lastNewline(before: size).map { $0 + 1 } ?? 0
        guard end < size else { return 0 }
        do throws(SystemError) {
            try BlockingIO.truncate(descriptor.number, to: end)
        } catch {
            throw .file(path: path, error)
        }
        return size - end
    }

    /// The last two lines of a file that ends with a newline; nil for one that is missing or cannot be read.
    func lastLines() throws(AuditError) -> (before: AuditLine?, last: AuditLine?) {
        let size = size
        let count = min(size, 2 * (AuditLine.lengthLimit + 1))
        let lines = try read(at: size - count, count: count).dropLast()
            .split(separator: Self.newline, omittingEmptySubsequences: false)
        return (lines.dropLast().last.flatMap(AuditLine.init), lines.last.flatMap(AuditLine.init))
    }

    private func lastNewline(before offset: Int) throws(AuditError) -> Int? {
        var end = offset
        while end > 0 {
            let start = max(0, end - Self.window)
            if let index = try read(at: start, count: end - start).lastIndex(of: Self.newline) {
                return start + index
            }
            end = start
        }
        return nil
    }
}
