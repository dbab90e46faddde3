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
        let device: UInt
        let number: UInt
    }

    let directory: String
    let database: String
    private var identity: Identity?
    private var logIdentity: Identity?
    /// Bytes of the write-ahead log when the files were last looked at.
    private(set) var logSize = 0

    init(directory: String, database: String) {
        self.directory = directory
        self.database = database
    }

    /// Takes the files as they are now for the store's.
    mutating func adopt() {
        identity = Self.status(database)?.identity
        let log = Self.status(database + "-wal")
        logIdentity = log?.identity
        logSize = log?.size ?? 0
    }

    /// Whether the paths lead to the files that were adopted.
    mutating func areInPlace() -> Bool {
        let log = Self.status(database + "-wal")
        logSize = log?.size ?? 0
        // SQLite makes the log with the first write.
        if logIdentity == nil { logIdentity = log?.identity }
        return Self.status(database)?.identity == identity && log?.identity == logIdentity
    }

    private static func status(_ path: String) -> (identity: Identity, size: Int)? {
        var status = stat()
        guard unsafe stat(path, &status) == 0 else { return nil }
        return (Identity(device: UInt(status.st_dev), number: UInt(status.st_ino)), Int(status.st_size))
    }
}
