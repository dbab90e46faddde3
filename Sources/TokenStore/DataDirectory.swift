internal import Glibc

/// The folder that holds the database, locked against other processes for as long as this value lives.
package struct DataDirectory: ~Copyable, Sendable {
    package static let controlSocketName = "control.sock"
    private static let lockName = "lock"
    /// What lies in it, some of it only while a server runs; the key ring may lie elsewhere.
    package static let fileNames =
        ["", "-wal", "-shm"].map { SQLiteTokenStore.fileName + $0 } + [lockName, controlSocketName]

    package let path: String
    private let lock: Int32

    /// Locks a folder.
    ///
    /// The lock is the kernel's (flock(2)) and goes with the process, however that ends: a file that is left behind
    /// blocks nobody. It holds the owner's process id for whoever is refused.
    ///
    /// - Parameters:
    ///   - path: The folder.
    ///   - creates: Whether it is created (mode 0700) if it is missing, with the folders above it.
    package init(path: String, creates: Bool) throws(StoreOpenError) {
        if creates { try Self.create(path) }
        guard unsafe access(path, R_OK | W_OK | X_OK) == 0 else {
            throw .directory(path: path, call: "access", code: errno)
        }
        let file = path + "/" + Self.lockName
        // A link that the folder's owner has put there could have root cut any file to nothing.
        let descriptor = Self.openOrMake(file, followsLinks: false)
        guard descriptor >= 0 else {
            throw .directory(path: path, call: "open \(file)", code: errno)
        }
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
            let processID = Self.readNumber(descriptor)
            _ = close(descriptor)
            throw .inUse(path: path, processID: processID)
        }
        let text = Array("\(getpid())\n".utf8)
        _ = ftruncate(descriptor, 0)
        // Only for the message above: a disk that is full here will be reported by the database.
        _ = unsafe text.withUnsafeBytes { unsafe pwrite(descriptor, $0.baseAddress, $0.count, 0) }
        self.path = path
        lock = descriptor
    }

    deinit {
        _ = close(lock)
    }

    /// Whether the path still leads to the file that is locked, so that nobody else can have locked another one there.
    var isInPlace: Bool {
        var (own, found) = (stat(), stat())
        return unsafe fstat(lock, &own) == 0 && stat(path + "/" + Self.lockName, &found) == 0
            && own.st_dev == found.st_dev && own.st_ino == found.st_ino
    }

    /// Makes the folder and those above it, as far as they are missing.
    private static func create(_ path: String) throws(StoreOpenError) {
        var status = stat()
        if unsafe stat(path, &status) == 0 {
            guard status.st_mode & S_IFMT == S_IFDIR else { throw .notADirectory(path: path) }
            return
        }
        let parent = path.lastIndex(of: "/").map { String(path[..<$0]) } ?? ""
        if errno == ENOENT && !parent.isEmpty { try create(parent) }
        guard unsafe mkdir(path, 0o700) == 0 || errno == EEXIST else {
            throw .directory(path: path, call: "mkdir", code: errno)
        }
        // The folder's own entry has to survive a power cut as well.
        guard synchronize(parent.isEmpty ? (path.hasPrefix("/") ? "/" : ".") : parent) else {
            throw .directory(path: path, call: "fsync", code: errno)
        }
    }

    /// Makes a folder's entries durable (fsync(2), "Calling fsync").
    ///
    /// - Returns: False when that has failed; errno tells why.
    static func synchronize(_ path: String) -> Bool {
        let descriptor = unsafe open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        // One that may be written and not read cannot be synced.
        guard descriptor >= 0 else { return errno == EACCES }
        let isDurable = fsync(descriptor) == 0
        let code = errno
        _ = close(descriptor)
        errno = code
        // Some file systems have nothing to sync in a folder.
        return isDurable || code == EINVAL
    }

    /// Makes a file (mode 0600) that is missing, or opens the one that is there, to read and write.
    ///
    /// - Parameters:
    ///   - path: Of the file; one that is made is its folder's owner's, as in `PrivateFile.create`.
    ///   - followsLinks: Whether the file may lie elsewhere.
    /// - Returns: The descriptor; negative after an error, whose number is in errno.
    static func openOrMake(_ path: String, followsLinks: Bool) -> Int32 {
        let flags = O_RDWR | O_CLOEXEC | (followsLinks ? 0 : O_NOFOLLOW)
        let made = unsafe Glibc.open(path, flags | O_CREAT | O_EXCL, 0o600)
        guard made >= 0 else {
            return errno == EEXIST ? unsafe Glibc.open(path, flags | O_CREAT, 0o600) : made
        }
        PrivateFile.adoptOwner(made, of: PrivateFile.folder(of: path))
        return made
    }

    private static func readNumber(_ descriptor: Int32) -> Int? {
        var text = [UInt8](repeating: 0, count: 24)
        let count = unsafe pread(descriptor, &text, text.count, 0)
        guard count > 0 else { return nil }
        return Int(String(decoding: text[..<count].prefix { $0 >= 0x30 && $0 <= 0x39 }, as: UTF8.self))
    }
}
