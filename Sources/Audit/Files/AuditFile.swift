internal import Glibc
internal import Synchronization
internal import System

/// A file of the log, open for appending whole lines.
///
/// One thread at a time appends; any thread synchronizes.
final class AuditFile: Sendable {
    let path: String
    private let descriptor: FileDescriptor
    /// How many bytes of half a line are at the end, and could not be cut off yet.
    private let tornBytes = Atomic<Int>(0)

    /// Opens a file, and creates it (mode 0640) if it does not exist.
    init(_ path: String) throws(AuditError) {
        self.path = path
        do throws(SystemError) {
            descriptor = try Self.open(path, Self.flags)
        } catch {
            throw .file(path: path, error)
        }
        guard let status = try? FileStatus.read(descriptor.number), status.isFile else { throw .notAFile(path: path) }
        // Two servers would tear each other's chain. A file on a file system without locks is used without one.
        guard flock(descriptor.number, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK else { throw .inUse(path: path) }
    }

    deinit {
        // A process that is just being spawned may still have a copy of the descriptor, which would keep the lock.
        _ = flock(descriptor.number, LOCK_UN)
    }

    /// Opens a file that nothing is appended to, and does not lock it; nil if it does not exist and could be created.
    init?(examining path: String) throws(AuditError) {
        self.path = path
        do throws(SystemError) {
            descriptor = try FileDescriptor(opening: path, Self.flags)
        } catch {
            guard error.code == ENOENT else { throw .file(path: path, error) }
            guard unsafe access(Path.folder(of: path), W_OK | X_OK) != 0 else { return nil }
            throw .file(path: path, SystemError.last("open"))
        }
        guard let status = try? FileStatus.read(descriptor.number), status.isFile else { throw .notAFile(path: path) }
    }

    /// O_NONBLOCK makes it fail at once for a pipe, which cannot be an audit log anyway.
    private static let flags = O_RDWR | O_APPEND | O_NOCTTY | O_NONBLOCK

    private static func open(_ path: String, _ flags: Int32) throws(SystemError) -> FileDescriptor {
        do throws(SystemError) {
            return try FileDescriptor(opening: path, flags)
        } catch {
            guard error.code == ENOENT else { throw error }
        }
        do throws(SystemError) {
            // O_EXCL does not follow a dangling link, with which another user who may write to the folder could make us
            // create a file anywhere.
            let file = try FileDescriptor(opening: path, flags | O_CREAT | O_EXCL, mode: 0o640)
            // A command that root runs must not keep the server's user from it.
            file.adoptOwner(of: Path.folder(of: path))
            try Folder.synchronize(Path.folder(of: path))
            return file
        } catch {
            // Another process, such as logrotate, has created the file in between.
            guard error.code == EEXIST else { throw error }
            return try FileDescriptor(opening: path, flags)
        }
    }

    /// In bytes.
    var size: Int { (try? FileStatus.read(descriptor.number))?.size ?? 0 }

    /// Whether a path leads to this file.
    func isAt(_ path: String) -> Bool {
        guard let own = try? FileStatus.read(descriptor.number), let found = FileStatus(path) else { return false }
        return own.identity == found.identity
    }

    /// Whether the file has no name any more: what is written to it is lost.
    var isRemoved: Bool { (try? FileStatus.read(descriptor.number))?.linkCount == 0 }

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

    /// Cuts the file off.
    func truncate(to size: Int) throws(AuditError) {
        do throws(SystemError) {
            try BlockingIO.truncate(descriptor.number, to: size)
        } catch {
            throw .file(path: path, error)
        }
    }

    /// Tries again to cut off what a failed call has left.
    func cutTornBytes() throws(AuditError) {
        let count = tornBytes.load(ordering: .relaxed)
        guard count > 0 else { return }
        // By the present size, as the file may have been emptied in between.
        let size = size
        do throws(SystemError) {
            try BlockingIO.truncate(descriptor.number, to: max(0, size - count))
        } catch {
            throw .torn(path: path, error)
        }
        tornBytes.store(0, ordering: .relaxed)
    }

    /// Returns when the lines so far are on the disk.
    func synchronize() throws(AuditError) {
        do throws(SystemError) {
            try BlockingIO.synchronizeData(descriptor.number)
        } catch {
            throw .file(path: path, error)
        }
    }
}
