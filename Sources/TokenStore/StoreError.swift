internal import Glibc

/// A read or a write that failed.
///
/// The store itself goes on.
package enum StoreError: Error, Hashable, CustomStringConvertible {
    case read(SQLiteError)
    case write(SQLiteError)
    /// The row cannot be opened; the others can.
    case sealing(SealingError)
    /// A new id is one too many.
    case full(StoreLimit)
    /// A token that was written later is stored under the id, and was to be kept.
    case newer
    /// The key that the row was sealed with is being retired, or the ring was changed.
    case staleKey
    /// The files of the store are not where they were.
    case vanished(path: String)
    /// The WAL was removed or cut while the store was in use.
    case logLost(path: String)
    /// The store could not be opened again after a fault.
    case unusable(StoreOpenError)
    /// The key ring could not be changed.
    case keyRing(KeyRingError)
    /// What was asked for does not fit the state of things; says which and what to do.
    case refused(String)
    /// Too many writes wait already, and this one was not begun.
    case overloaded(StoreOverload)
    /// The store is being closed.
    case closed

    /// Whether the store has reported the state that leads to it as a `StoreEvent`.
    package var isToldByStore: Bool {
        switch self {
        case .write(let error): !error.isOfOneStatement
        case .full, .vanished, .logLost, .unusable: true
        case .read, .sealing, .staleKey, .newer, .keyRing, .refused, .overloaded, .closed: false
        }
    }

    package var description: String {
        switch self {
        case .read(let error): "reading failed: \(error)"
        case .write(let error): "writing failed: \(error)"
        case .sealing(let error): "\(error)"
        case .full(let limit): "\(limit)"
        case .staleKey: "the store or its keys were changed meanwhile; try again"
        case .newer: "a newer token is stored under this id"
        case .vanished(let path): "\(path) is no longer there; put it back, or restart to begin with an empty store"
        case .logLost(let path): "\(path) was removed or cut; the database is being opened anew"
        case .unusable(let error): "\(error)"
        case .keyRing(let error): "\(error)"
        case .refused(let reason): reason
        case .overloaded(let overload): "\(overload)"
        case .closed: "the store is closed"
        }
    }
}

/// Why a write is refused at once rather than made to wait.
package enum StoreOverload: Hashable, Sendable, CustomStringConvertible {
    /// Requests and answers that wait take all of `limits.buffers`.
    case buffers
    /// Rows that wait to be written take all of `store.queue.max_bytes`.
    case queue(bytes: Int)
    /// The disk has been at one write for longer than `store.queue.max_wait`.
    case stalled(limit: Duration)

    package var description: String {
        switch self {
        case .buffers:
            "requests and answers under way take all the memory that limits.buffers allows; the token was not stored"
        case .queue(let bytes):
            """
            tokens that wait for the disk take the \(bytes) bytes that store.queue.max_bytes allows; \
            the token was not stored
            """
        case .stalled(let limit):
            """
            a write to the disk has taken longer than the \(limit) that store.queue.max_wait allows; \
            tokens are refused until it has ended
            """
        }
    }
}

/// A limit of the settings that a store has reached.
package enum StoreLimit: Hashable, Sendable, CustomStringConvertible {
    case tokens(Int)
    case bytes(Int)

    package var description: String {
        switch self {
        case .tokens(let limit):
            "the store holds \(limit) tokens, as many as store.max_tokens allows; new ids are refused, known ones are not"
        case .bytes(let limit):
            "the store takes \(limit) bytes, as many as store.max_bytes allows; new ids are refused, known ones are not"
        }
    }
}

/// Why a store cannot be opened; says what to do about it.
package enum StoreOpenError: Error, Hashable, CustomStringConvertible {
    /// The data directory cannot be created, entered or written; with the `errno` of the call.
    case directory(path: String, call: String, code: Int32)
    /// The path exists and is no directory.
    case notADirectory(path: String)
    /// Another process has the data directory; its process id, if it could be read.
    case inUse(path: String, processID: Int?)
    /// Another process uses the database that this directory has a link to.
    case databaseInUse(path: String, directory: String, processID: Int?)
    /// A link that is not followed stands in the place of a file.
    case link(LinkError)
    /// Another program has the database itself open; its process id, if it can be told.
    case openElsewhere(path: String, processID: Int?)
    /// The file is not an SQLite database, or is damaged.
    case notADatabase(path: String, SQLiteError)
    /// The WAL is damaged, and opening the database would drop commits that were acknowledged; a copy of it is kept.
    case damagedLog(path: String, LogDamage, copy: String)
    /// The WAL is damaged, and no copy of it can be kept.
    case damagedLogNotKept(path: String, LogDamage, reason: String)
    /// The file is an SQLite database, but not one of this program.
    case foreign(path: String)
    /// The file was written by a later version of this program.
    case newer(path: String, version: Int, supported: Int)
    /// The file was written by an earlier version, and cannot be made one of this version; it stays as it is.
    case conversion(path: String, reason: String)
    /// The key ring cannot be used, or is not the right one.
    case keyRing(KeyRingError)
    /// The settings ask for sealing, and the store has tokens in the clear.
    case notSealed(path: String)
    /// The settings ask for no sealing, and the store is sealed.
    case sealed(path: String)
    /// There is no store.
    case missing(path: String)
    /// Anything else that SQLite says.
    case database(path: String, SQLiteError)

    package var description: String {
        switch self {
        case .directory(let path, let call, let code):
            """
            the data directory \(path) cannot be used (\(call): \(unsafe String(cString: strerror(code)))); \
            give the server's user write access to it, or name another one with --data-directory
            """
        case .notADirectory(let path):
            "the data directory \(path) is not a directory; name another one with --data-directory"
        case .inUse(let path, let processID):
            """
            the data directory \(path) is in use by \(processID.map { "process \($0)" } ?? "another process"); \
            stop that one first, or name another directory with --data-directory
            """
        case .databaseInUse(let path, let directory, let processID):
            """
            the database \(path), which the data directory \(directory) has a link to, is in use by \
            \(processID.map { "process \($0)" } ?? "another process") with another data directory; stop that one first, or \
            name its directory with --data-directory
            """
        case .link(let error): "\(error)"
        case .openElsewhere(let path, let processID):
            """
            \(path) is open in another program (\(processID.map { "process \($0)" } ?? "fuser \(path) names it")); \
            end that one first: nobody else may have the database open while it is in use here
            """
        case .notADatabase(let path, let error):
            """
            \(path) is not a usable database (\(error)); \
            move it away to start with an empty store, or put a backup in its place with token-cache restore
            """
        case .damagedLog(let path, let damage, let copy):
            """
            the WAL \(path) is damaged: \(damage). Clients were told that these commits are stored, and opening the database \
            drops them; nothing was changed, and a copy is kept as \(copy). Put a backup in the store's place with token-cache restore, \
            or go on without it: token-cache serve --accept-damaged-wal once, or store.accept_damaged_wal: on
            """
        case .damagedLogNotKept(let path, let damage, let reason):
            """
            the WAL \(path) is damaged: \(damage). Clients were told that these commits are stored, and opening the database \
            drops them; no copy can be kept (\(reason)), and nothing was changed. Make it possible to keep one, and try again
            """
        case .foreign(let path):
            "\(path) is a database of another program; name another directory with --data-directory"
        case .newer(let path, let version, let supported):
            """
            \(path) has schema version \(version), and this program knows versions up to \(supported); \
            run the version of token-cache that wrote it, or a later one
            """
        case .conversion(let path, let reason):
            """
            \(path) was written by an earlier version and cannot be converted to the form of this one, which takes as much \
            room again beside it (\(reason)); it is as it was. Mend that and try again, or run the earlier version
            """
        case .keyRing(let error): "\(error)"
        case .notSealed(let path):
            """
            the store \(path) holds tokens in the clear, and sealing is on; \
            seal it with token-cache seal, or set sealing.enabled to off
            """
        case .sealed(let path):
            """
            the store \(path) is sealed, and sealing is off; \
            set sealing.enabled to on, or unseal it with token-cache unseal
            """
        case .missing(let path):
            "there is no store at \(path); name its folder with --data-directory"
        case .database(let path, let error):
            "the database \(path) cannot be opened: \(error)"
        }
    }
}
