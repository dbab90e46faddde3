internal import CLinux
internal import Glibc

/// The files of an open store, and whether they are still the ones that the paths lead to.
///
/// A folder can vanish under a running server: deleted, moved away, or its disk gone. What is then written goes to files
/// that nobody will find again, so each commit is followed by a look at the paths.
///
/// Used by one thread at a time.
struct StoreFiles: ~Copyable {
    /// What tells one file from another for as long as either is open.
    private struct Identity: Equatable {
        var device: UInt64 = 0
        var number: UInt64 = 0
    }

    let directory: String
    let database: String
    private let log: String
    private var identity: Identity?
    private var logIdentity: Identity?

    init(directory: String, database: String) {
        self.directory = directory
        self.database = database
        log = database + "-wal"
    }

    /// Takes the files as they are now for the store's.
    mutating func adopt() {
        identity = Self.identity(database)
        logIdentity = Self.identity(log)
    }

    /// Whether the paths lead to the files that were adopted.
    mutating func areInPlace() -> Bool {
        let log = Self.identity(log)
        // SQLite makes the log with the first write.
        if logIdentity == nil { logIdentity = log }
        return identity != nil && Self.identity(database) == identity && log == logIdentity
    }

    private static func identity(_ path: String) -> Identity? {
        var identity = Identity()
        if unsafe clinux_file_identity(path, &identity.device, &identity.number) == 0 { return identity }
        // Refused by name, as by the system call filters of containers before 2018: then the dearer call has to do.
        var status = stat()
        guard errno == EPERM || errno == ENOSYS, unsafe stat(path, &status) == 0 else { return nil }
        return Identity(device: UInt64(status.st_dev), number: UInt64(status.st_ino))
    }
}
