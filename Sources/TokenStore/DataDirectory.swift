internal import Glibc

/// The folder that holds the database, or a link to it, locked against other processes for as long as this value lives.
package struct DataDirectory: ~Copyable, Sendable {
    package static let controlSocketName = "control.sock"
    private static let lockName = "lock"
    /// What lies in it, some of it only while a server runs; the key ring may lie elsewhere.
    package static let fileNames =
        ["", "-wal", "-shm"].map { SQLiteTokenStore.fileName + $0 } + [lockName, controlSocketName]

    package let path: String
    /// The path of the database's file: if `tokens.db` is a link, of the file that it leads to.
    let database: String
    private let lock: FileLock
    /// Of a database that lies elsewhere, as another folder may lead to it as well.
    private let databaseLock: FileLock?

    /// Locks a folder, and the database if that lies elsewhere.
    ///
    /// - Parameters:
    ///   - path: The folder.
    ///   - creates: Whether it is created (mode 0700) if it is missing, with the folders above it.
    ///   - database: What the database's path has been so far; nil takes any.
    package init(path: String, creates: Bool, database: String? = nil) throws(StoreOpenError) {
        if creates { try Self.create(path) }
        guard unsafe access(path, R_OK | W_OK | X_OK) == 0 else {
            throw .directory(path: path, call: "access", code: errno)
        }
        let lock = try Self.lock(path + "/" + Self.lockName) { .inUse(path: path, processID: $0) }
        let found: FollowedPath
        do throws(LinkError) {
            found = try FollowedPath(path + "/" + SQLiteTokenStore.fileName)
            // SQLite does not follow these either, and says less.
            for suffix in ["-wal", "-shm", "-journal"] where FollowedPath.isLink(found.path + suffix) {
                throw .unexpected(path: found.path + suffix)
            }
        } catch {
            throw .link(error)
        }
        if let database, database != found.path { throw .missing(path: database) }
        databaseLock = try Self.databaseLock(of: found, in: path)
        self.lock = lock
        self.database = found.path
        self.path = path
    }

    /// Whether the paths still lead to the files that are locked, so that nobody else can have locked other ones there.
    var isInPlace: Bool {
        guard lock.isInPlace else { return false }
        switch databaseLock {
        case .some(let lock): return lock.isInPlace
        case .none: return true
        }
    }

    /// What is locked for a database that a link leads to: the lock of its folder where a server could have that as its data
    /// folder, otherwise a file beside it.
    static func lockFile(ofLinked database: String) -> String {
        let folder = PrivateFile.folder(of: database)
        let isStandard = database == folder + "/" + SQLiteTokenStore.fileName
        return isStandard ? folder + "/" + lockName : database + ".lock"
    }

    private static func databaseLock(
        of database: FollowedPath, in directory: String
    ) throws(StoreOpenError) -> FileLock? {
        guard database.isLink else { return nil }
        return try lock(lockFile(ofLinked: database.path)) {
            .databaseInUse(path: database.path, directory: directory, processID: $0)
        }
    }

    private static func lock(
        _ file: String, inUse: (_ processID: Int?) -> StoreOpenError
    ) throws(StoreOpenError) -> FileLock {
        do throws(FileLock.Failure) {
            return try FileLock(file)
        } catch {
            switch error {
            case .held(let processID): throw inUse(processID)
            case .link(let error): throw .link(error)
            case .system(let call, let code):
                throw .directory(path: PrivateFile.folder(of: file), call: call, code: code)
            }
        }
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

    /// Makes a file (mode 0600) that is missing, or opens the one that is there, to read and write; never through a link.
    ///
    /// - Parameter path: Of the file; one that is made is its folder's owner's, as in `PrivateFile.create`.
    /// - Returns: The descriptor; negative after an error, whose number is in errno.
    static func openOrMake(_ path: String) -> Int32 {
        let flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW
        let made = unsafe Glibc.open(path, flags | O_CREAT | O_EXCL, 0o600)
        guard made >= 0 else { return errno == EEXIST ? unsafe Glibc.open(path, flags) : made }
        PrivateFile.adoptOwner(made, of: PrivateFile.folder(of: path))
        return made
    }
}
