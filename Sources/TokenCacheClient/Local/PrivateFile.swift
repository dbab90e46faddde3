import Foundation

/// A file that only its owner can read, and that is never there in part.
///
/// A new item is written to a second file, synced, and renamed, so that half of it is never seen, even after a crash. Processes
/// that change something in the same folder take turns by a lock file in it (`flock`), which is held for one change and never
/// across a wait. On Apple's systems the file stays out of backups; with a passcode it is readable once the device was unlocked.
struct PrivateFile: LocalStorage {
    let url: URL

    private var folder: URL { url.deletingLastPathComponent() }
    /// Left behind by a crash, it is overwritten by the next write.
    private var newFile: URL { folder.appending(path: "." + url.lastPathComponent + ".new") }

    func read() throws(TokenCacheError) -> Data? {
        let descriptor = unsafe open(url.path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else {
            let code = errno
            // ENOTDIR is an error: there is a file in place of the folder.
            if code == ENOENT { return nil }
            throw Self.failure("read", code)
        }
        defer { close(descriptor) }
        do {
            return try FileHandle(fileDescriptor: descriptor, closeOnDealloc: false).readToEnd() ?? Data()
        } catch {
            throw Self.failure("read", error)
        }
    }

    func write(_ item: Data) throws(TokenCacheError) {
        try Self.makeFolder(folder)
        try? FileManager.default.removeItem(at: newFile)
        let descriptor = unsafe open(newFile.path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw Self.failure("write", errno) }
        do {
            defer { close(descriptor) }
            // While it is still empty.
            try Self.protect(newFile)
            try FileHandle(fileDescriptor: descriptor, closeOnDealloc: false).write(contentsOf: item)
            guard Self.sync(descriptor) else { throw Self.failure("write", errno) }
        } catch {
            try? FileManager.default.removeItem(at: newFile)
            throw Self.failure("write", error)
        }
        guard unsafe rename(newFile.path, url.path) == 0 else { throw Self.failure("write", errno) }
        try syncFolder()
    }

    func remove() throws(TokenCacheError) {
        guard FileManager.default.fileExists(atPath: folder.path) else { return }
        for file in [newFile, url] {
            guard unsafe unlink(file.path) == 0 || errno == ENOENT else { throw Self.failure("remove", errno) }
        }
        try syncFolder()
    }

    func all() throws(TokenCacheError) -> [any LocalStorage] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? []
        // A user's file has a hash and `.json` as its name, 69 bytes.
        return names.filter { $0.hasSuffix(".json") && $0.utf8.count == 69 }
            .map { PrivateFile(url: folder.appending(path: $0)) }
    }

    func lockRefreshes() throws(TokenCacheError) -> RefreshLock? {
        try RefreshLock.file(in: folder, hashOfUser: url.lastPathComponent)
    }

    func exclusively<Result>(_ body: () throws(TokenCacheError) -> Result) throws(TokenCacheError) -> Result {
        try Self.exclusively(in: folder, body)
    }

    /// Runs the body while no other task or process runs one for the same folder.
    static func exclusively<Result>(
        in folder: URL, _ body: () throws(TokenCacheError) -> Result
    ) throws(TokenCacheError) -> Result {
        try makeFolder(folder)
        #if canImport(Darwin) && !os(macOS)
        // iOS ends a process that it suspends while it holds a lock in an app group (0xdead10cc). The activity keeps it awake.
        let (begun, ended) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        ProcessInfo.processInfo.performExpiringActivity(withReason: "changes a stored login") { isExpired in
            begun.signal()
            if !isExpired { ended.wait() }
        }
        begun.wait()
        defer { ended.signal() }
        #endif
        let lock = folder.appending(path: ".lock").path
        let descriptor = unsafe open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw failure("lock", errno) }
        // Closing releases the lock.
        defer { close(descriptor) }
        while flock(descriptor, LOCK_EX) != 0 {
            guard errno == EINTR else { throw failure("lock", errno) }
        }
        return try body()
    }

    // MARK: - Parts

    /// Makes a rename or removal survive a power cut.
    private func syncFolder() throws(TokenCacheError) {
        let descriptor = unsafe open(folder.path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw Self.failure("sync", errno) }
        defer { close(descriptor) }
        guard Self.sync(descriptor) else { throw Self.failure("sync", errno) }
    }

    private static func sync(_ descriptor: Int32) -> Bool {
        #if canImport(Darwin)
        // fsync would leave the data in the disk's own cache. Not every file system supports F_FULLFSYNC.
        if fcntl(descriptor, F_FULLFSYNC) != -1 { return true }
        #endif
        return fsync(descriptor) == 0
    }

    static func makeFolder(_ folder: URL) throws(TokenCacheError) {
        guard !FileManager.default.fileExists(atPath: folder.path) else { return }
        var attributes: [FileAttributeKey: Any] = [.posixPermissions: 0o700]
        #if canImport(Darwin) && !os(macOS)
        // The folder's files inherit it.
        attributes[.protectionKey] = FileProtectionType.completeUntilFirstUserAuthentication
        #endif
        do {
            try FileManager.default.createDirectory(
                at: folder, withIntermediateDirectories: true, attributes: attributes)
        } catch {
            throw failure("make the folder \(folder.path) for", error)
        }
    }

    /// Keeps a file out of backups, and encrypted until the device is unlocked for the first time.
    static func protect(_ file: URL) throws {
        #if canImport(Darwin)
        var values = URLResourceValues()
        values.isExcludedFromBackup = true
        var file = file
        try file.setResourceValues(values)
        #if !os(macOS)
        let protection = FileProtectionType.completeUntilFirstUserAuthentication
        try FileManager.default.setAttributes([.protectionKey: protection], ofItemAtPath: file.path)
        #endif
        #endif
    }

    /// The error that Foundation has thrown, with the system's code if it names one.
    private static func failure(_ operation: String, _ error: any Error) -> TokenCacheError {
        if let error = error as? TokenCacheError { return error }
        let error = error as NSError
        let code = (error.userInfo[NSUnderlyingErrorKey] as? NSError)?.code ?? error.code
        return .storage(operation: operation, code: code, detail: error.localizedDescription)
    }

    private static func failure(_ operation: String, _ code: Int32) -> TokenCacheError {
        #if os(iOS) || os(watchOS) || os(visionOS)
        // The error of files that are still encrypted, on systems that encrypt files one by one.
        if code == EPERM, operation == "read" { return .locked }
        #endif
        return .storage(
            operation: operation, code: Int(code),
            detail: NSError(domain: NSPOSIXErrorDomain, code: Int(code)).localizedDescription)
    }
}
