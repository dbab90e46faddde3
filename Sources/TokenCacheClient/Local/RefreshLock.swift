import Foundation

/// Keeps the other sessions and processes of this device from refreshing a user's token.
///
/// It is held across the exchange with the provider, and ends with the process at the latest.
final class RefreshLock: Sendable {
    /// Stands for this device in leases: a lease that another process has left behind is the device's own.
    let device: String
    private let end: Locked<(@Sendable () -> Void)?>

    init(device: String = UUID().uuidString, end: @escaping @Sendable () -> Void) {
        self.device = device
        self.end = Locked(end)
    }

    /// A lock in memory; nil if it is held.
    convenience init?(_ isHeld: Locked<Bool>, device: String = UUID().uuidString) {
        let wasHeld = isHeld.withLock { isHeld in
            defer { isHeld = true }
            return isHeld
        }
        if wasHeld { return nil }
        self.init(device: device) { isHeld.withLock { $0 = false } }
    }

    deinit {
        release()
    }

    func release() {
        end.withLock { end in
            defer { end = nil }
            return end
        }?()
    }

    /// The lock of a user; nil if it is held.
    ///
    /// It is on one of 256 files, each with a random text that stands for the device, as a file for each user would tell later who
    /// they were. Users who share one wait for each other. The files stay out of backups: restored on another device, they would
    /// stand for both.
    static func file(in folder: URL, hashOfUser hash: String) throws(TokenCacheError) -> RefreshLock? {
        try PrivateFile.makeFolder(folder)
        let url = folder.appending(path: ".refresh-" + hash.prefix(2))
        let descriptor = unsafe open(url.path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw .storage(operation: "lock", code: Int(errno)) }
        // Of this descriptor alone, so that it keeps this process's other sessions out as well.
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
            let code = errno
            close(descriptor)
            if code == EWOULDBLOCK || code == EINTR { return nil }
            throw .storage(operation: "lock", code: Int(code))
        }
        try? PrivateFile.protect(url)
        let file = FileHandle(fileDescriptor: descriptor, closeOnDealloc: false)
        var device = (try? file.readToEnd()).map { String(decoding: $0, as: UTF8.self) } ?? ""
        if device.utf8.count != 36 {
            device = UUID().uuidString
            ftruncate(descriptor, 0)
            lseek(descriptor, 0, SEEK_SET)
            try? file.write(contentsOf: Data(device.utf8))
        }
        #if canImport(Darwin) && !os(macOS)
        // A process that is suspended with a lock in the folder of an app group is killed (0xdead10cc).
        let isReleased = DispatchSemaphore(value: 0)
        let lock = RefreshLock(device: device) {
            close(descriptor)
            isReleased.signal()
        }
        ProcessInfo.processInfo.performExpiringActivity(withReason: "refreshing a token") { [weak lock] isExpired in
            guard isExpired else { return isReleased.wait() }
            // The exchange may still be under way, so for the next process its lease is another device's.
            if let lock { lock.end.withLock { if $0 != nil { ftruncate(descriptor, 0) } } }
            lock?.release()
        }
        return lock
        #else
        return RefreshLock(device: device) { close(descriptor) }
        #endif
    }
}
