/// A read or a write that failed.
///
/// The store itself goes on.
package enum StoreError: Error, Hashable, CustomStringConvertible {
    case read(SQLiteError)
    case write(SQLiteError)
    /// The store is being closed.
    case closed

    package var description: String {
        switch self {
        case .read(let error): "reading failed: \(error)"
        case .write(let error): "writing failed: \(error)"
        case .closed: "the store is closed"
        }
    }
}

/// Why a store cannot be opened; says what to do about it.
package enum StoreOpenError: Error, Hashable, CustomStringConvertible {
    /// The data directory cannot be created, entered or written.
    case directory(path: String, call: String, reason: String)
    /// The path exists and is no directory.
    case notADirectory(path: String)
    /// Another process has the data directory; its process id, if it could be read.
    case inUse(path: String, processID: Int?)
    /// The file is not an SQLite database, or is damaged.
    case notADatabase(path: String, SQLiteError)
    /// The file is an SQLite database, but not one of this program.
    case foreign(path: String)
    /// The file was written by a later version of this program.
    case newer(path: String, version: Int, supported: Int)
    /// Anything else that SQLite says.
    case database(path: String, SQLiteError)

    package var description: String {
        switch self {
        case .directory(let path, let call, let reason):
            """
            the data directory \(path) cannot be used (\(call): \(reason)); \
            give the server's user write access to it, or name another one with --data-directory
            """
        case .notADirectory(let path):
            "the data directory \(path) is not a directory; name another one with --data-directory"
        case .inUse(let path, let processID):
            """
            the data directory \(path) is in use by \(processID.map { "process \($0)" } ?? "another process"); \
            stop that one first, or name another directory with --data-directory
            """
        case .notADatabase(let path, let error):
            """
            \(path) is not a usable database (\(error)); \
            move it away to start with an empty store, or put a backup in its place
            """
        case .foreign(let path):
            "\(path) is a database of another program; name another directory with --data-directory"
        case .newer(let path, let version, let supported):
            """
            \(path) has schema version \(version), and this program knows versions up to \(supported); \
            run the version of token-cache that wrote it, or a later one
            """
        case .database(let path, let error):
            "the database \(path) cannot be opened: \(error)"
        }
    }
}
