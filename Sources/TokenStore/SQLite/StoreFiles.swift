internal import CLinux
internal import Glibc

/// The files of an open store, and whether they are still the ones that the paths lead to.
///
/// A folder can vanish under a running server: deleted, moved away, or its disk gone. What is then written goes to files
/// that nobody will find again, so each commit is followed by a look at the paths. The log alone can be removed, or cut,
/// by somebody who takes it for a file that tells what the server does.
///
/// Used by one thread at a time.
struct StoreFiles: ~Copyable {
    /// What tells one file from another for as long as either is open.
    private struct Identity: Equatable {
        var device: UInt64 = 0
        var number: UInt64 = 0
    }

    private struct File {
        var identity = Identity()
        var size: UInt64 = 0
    }

    enum Finding {
        case inPlace
        /// The database is no longer where it was.
        case vanished
        /// The database is in its place, and its log is not.
        case logRemoved
        /// The log has become shorter than what was written to it.
        case logCut
        /// The database has become shorter than it was, and than its last commit says.
        case databaseCut
    }

    let directory: String
    let database: String
    /// Beside the database, also when a symbolic link leads to that.
    private(set) var log: String
    private var identity: Identity?
    private var logIdentity: Identity?
    private var databaseSize: UInt64 = 0

    init(directory: String, database: String) {
        self.directory = directory
        self.database = database
        log = database + "-wal"
    }

    /// Takes the files as they are now for the store's.
    mutating func adopt() {
        log = PrivateFile.resolved(database) + "-wal"
        let file = Self.file(database)
        identity = file?.identity
        databaseSize = file?.size ?? 0
        logIdentity = Self.file(log)?.identity
    }

    /// Looks whether the paths lead to the files that were adopted.
    ///
    /// - Parameters:
    ///   - logSize: Bytes that the log has at least.
    ///   - databaseSize: Bytes of the database as of the last commit in the log, which a checkpoint may cut it to; nil when
    ///     there is none.
    mutating func look(logSize: Int, databaseSize: Int?) -> Finding {
        guard let identity, let found = Self.file(database), found.identity == identity else { return .vanished }
        guard found.size >= min(self.databaseSize, databaseSize.map(UInt64.init) ?? .max) else { return .databaseCut }
        self.databaseSize = found.size
        let file = Self.file(log)
        // SQLite makes the log with the first write.
        if logIdentity == nil { logIdentity = file?.identity }
        guard file?.identity == logIdentity else { return .logRemoved }
        return file.map { $0.size < logSize } ?? false ? .logCut : .inPlace
    }

    private static func file(_ path: String) -> File? {
        var file = File()
        let code = unsafe clinux_file_identity(path, &file.identity.device, &file.identity.number, &file.size)
        if code == 0 { return file }
        // Refused by name, as by the system call filters of containers before 2018: then the dearer call has to do.
        var status = stat()
        guard errno == EPERM || errno == ENOSYS, unsafe stat(path, &status) == 0 else { return nil }
        file.identity = Identity(device: UInt64(status.st_dev), number: UInt64(status.st_ino))
        file.size = UInt64(max(0, status.st_size))
        return file
    }
}
