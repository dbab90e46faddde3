import CLinux
import Glibc

/// Reads and writes whole texts and files on descriptors that block, across interrupts and partial transfers.
///
/// Takes plain numbers, as the standard streams have no owner.
package enum BlockingIO {
    /// Writes all bytes.
    ///
    /// - Parameters:
    ///   - bytes: What to write.
    ///   - descriptor: Where to write.
    package static func write(_ bytes: [UInt8], to descriptor: Int32) throws(SystemError) {
        var written = 0
        while written < bytes.count {
            let count = unsafe bytes.withUnsafeBytes { bytes in
                retryingInterrupts {
                    unsafe Glibc.write(descriptor, bytes.baseAddress?.advanced(by: written), bytes.count - written)
                }
            }
            // Another program has made it non-blocking.
            if count < 0 && errno == EAGAIN {
                _ = hasRoom(descriptor, within: -1)
                continue
            }
            guard count >= 0 else { throw SystemError.last("write") }
            written += count
        }
    }

    /// Writes bytes at a place of a file, without moving the file's position.
    package static func write(
        _ bytes: ArraySlice<UInt8>, to descriptor: Int32, at offset: Int
    ) throws(SystemError) {
        var written = 0
        while written < bytes.count {
            let count = unsafe bytes.withUnsafeBytes { bytes in
                retryingInterrupts {
                    unsafe pwrite(
                        descriptor, bytes.baseAddress?.advanced(by: written), bytes.count - written, offset + written)
                }
            }
            // Some file systems write nothing and report no error; a further attempt would not end.
            guard count != 0 else { throw SystemError(call: "pwrite", code: EIO) }
            guard count > 0 else { throw SystemError.last("pwrite") }
            written += count
        }
    }

    /// Waits until everything that was written to a file is on the disk (fsync(2)).
    package static func synchronize(_ descriptor: Int32) throws(SystemError) {
        guard retryingInterrupts({ fsync(descriptor) }) == 0 else { throw SystemError.last("fsync") }
    }

    /// Waits until a file's content, and the metadata that is needed to read it, are on the disk (fdatasync(2)).
    package static func synchronizeData(_ descriptor: Int32) throws(SystemError) {
        guard retryingInterrupts({ fdatasync(descriptor) }) == 0 else { throw SystemError.last("fdatasync") }
    }

    /// Has the system begin to write a part of a file to the disk, so that a later sync has less to wait for.
    package static func beginSynchronizing(_ descriptor: Int32, _ count: Int, at offset: Int) {
        // SYNC_FILE_RANGE_WRITE. A file system without this call writes later.
        _ = sync_file_range(descriptor, offset, count, 2)
    }

    /// Waits until everything that was written to a file system is on its disk (syncfs(2)); fails if anything could not be written
    /// since the descriptor was opened.
    ///
    /// - Parameter descriptor: Of any file or folder there.
    package static func synchronizeFileSystem(of descriptor: Int32) throws(SystemError) {
        guard retryingInterrupts({ syncfs(descriptor) }) == 0 else { throw SystemError.last("syncfs") }
    }

    /// Sets the size of a file: cuts its end off, or appends zeros.
    package static func truncate(_ descriptor: Int32, to size: Int) throws(SystemError) {
        guard retryingInterrupts({ ftruncate(descriptor, off_t(size)) }) == 0 else {
            throw SystemError.last("ftruncate")
        }
    }

    /// Whether a write to a descriptor would write something or fail, without waiting.
    ///
    /// A pipe then takes `PIPE_BUF` bytes, which are 4 KiB (pipe(7)).
    ///
    /// - Parameters:
    ///   - descriptor: Where to write.
    ///   - milliseconds: How long to wait for room; -1 is without limit.
    package static func hasRoom(_ descriptor: Int32, within milliseconds: Int32 = 0) -> Bool {
        var state = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        return unsafe poll(&state, 1, milliseconds) != 0
    }

    /// Reads to the end of a file or stream.
    ///
    /// What fits into one buffer is never moved to another, which would leave a copy that nobody wipes.
    ///
    /// - Parameters:
    ///   - limit: The most bytes that are read.
    ///   - size: How many bytes the first buffer has room for, unless 64 KiB are more.
    package static func read(
        from descriptor: Int32, limit: Int = .max, expecting size: Int = 0
    ) throws(SystemError) -> [UInt8] {
        var bytes: [UInt8] = []
        while bytes.count < limit {
            let left = bytes.capacity - bytes.count
            let room = min(left > 0 ? left : max(1 << 16, size), limit - bytes.count)
            var count = 0
            bytes.append(addingCapacity: room) { span in
                unsafe span.withUnsafeMutableBufferPointer { free, initialized in
                    let target = free.baseAddress
                    count = retryingInterrupts { unsafe Glibc.read(descriptor, target, room) }
                    initialized = max(0, count)
                }
            }
            guard count >= 0 else { throw SystemError.last("read") }
            if count == 0 { break }
        }
        return bytes
    }

    /// Reads a whole regular file, which is opened without waiting; fails with `EFBIG` if it is longer than the limit.
    ///
    /// - Returns: The bytes, which are in one buffer that the caller can wipe, and the file's status.
    package static func contents(
        ofFile path: String, _ flags: Int32 = O_RDONLY, limit: Int
    ) throws(SystemError) -> (bytes: [UInt8], status: FileStatus) {
        let descriptor = try FileDescriptor(openingFile: path, flags)
        let status = try FileStatus.read(descriptor.number)
        // Does not rely on the size, which some file systems report as 0 for files with contents.
        let bytes = try read(from: descriptor.number, limit: limit + 1, expecting: min(status.size, limit) + 1)
        guard bytes.count <= limit else { throw SystemError(call: "read", code: EFBIG) }
        return (bytes, status)
    }

    /// Reads a part of a file without moving its position; returns fewer bytes only at the end of the file.
    package static func read(from descriptor: Int32, at offset: Int, count: Int) throws(SystemError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        var received = 0
        while received < count {
            let part = unsafe bytes.withUnsafeMutableBytes { bytes in
                let rest = unsafe UnsafeMutableRawBufferPointer(rebasing: bytes[received...])
                return retryingInterrupts { unsafe pread(descriptor, rest.baseAddress, rest.count, offset + received) }
            }
            guard part >= 0 else { throw SystemError.last("pread") }
            if part == 0 { break }
            received += part
        }
        bytes.removeLast(count - received)
        return bytes
    }
}
