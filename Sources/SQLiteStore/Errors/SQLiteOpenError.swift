import Glibc
import System
package import TokenStore

/// Why a database cannot be opened; says what to do about it.
package enum SQLiteOpenError: Error, Hashable, CustomStringConvertible {
    /// A reason that every store may have.
    case shared(StoreOpenError)
    /// Another program has the database itself open.
    case openElsewhere(path: String)
    /// The file is not an SQLite database, or is damaged.
    case notADatabase(path: String, SQLiteError)
    /// The WAL is damaged, and opening the database would drop acknowledged commits. If the operator has accepted that,
    /// `copyFailure` says why no copy of the WAL can be kept.
    case damagedWAL(path: String, WALDamage, copyFailure: String? = nil)
    /// The database is complete without a WAL, and the WAL beside it is of another state or store; SQLite would mix the
    /// two.
    case foreignWAL(path: String)
    /// The database and its WAL were copied at different moments, or while the database was changed.
    case mixedFiles(path: String)
    /// The database is empty or missing, although there is its WAL, which SQLite would remove, or a `CheckRequest`.
    case emptied(path: String)
    /// The file is an SQLite database, but not one of this program.
    case foreign(path: String)
    /// Another version of this program made the file; it stays as it is.
    case otherVersion(path: String, version: Int, supported: Int)
    /// Any other error of SQLite.
    case database(path: String, SQLiteError)

    package var description: String {
        switch self {
        case .shared(let error): "\(error)"
        case .openElsewhere(let path):
            """
            \(path) is open in another program (fuser \(path) names it); \
            stop it first: no other program may have the database open while it is in use here
            """
        case .notADatabase(let path, let error):
            """
            \(path) is not a usable database (\(error)). If its disk has failed, which the kernel's log shows (dmesg), mend \
            that first: SQLite takes a page that cannot be read for a damaged one. Otherwise put a backup in its place with \
            token-cache restore, or move it away to start with an empty store
            """
        case .damagedWAL(let path, let damage, let copyFailure):
            """
            the WAL \(path) is damaged: \(damage). Clients were told that these commits are stored, and opening the database \
            drops them; nothing was changed. \(copyFailure.map(Self.adviceOnFailedCopy) ?? Self.adviceOnDamagedWAL)
            """
        case .foreignWAL(let path):
            """
            \(path) and its WAL \(path)-wal do not belong together: the database has no WAL, as after a backup was copied over a store's \
            database by hand; put a backup in the store's place with token-cache restore, or put both files back as they were \
            together. Nothing was changed. To go on with the database alone, move the WAL away, which loses what only the WAL holds
            """
        case .mixedFiles(let path):
            """
            \(path) and \(path)-wal are not of the same moment: they were copied one after the other while the server ran, or one of \
            them was replaced, and tokens that clients were told are stored would be missing. Nothing was changed. Put a backup in the \
            store's place with token-cache restore, or another copy of both files
            """
        case .emptied(let path):
            """
            \(path) is empty or missing, but \(path)-wal or \(path)-check says that it had tokens: it was cut off or moved away; put \
            it back, or a backup in its place with token-cache restore. Nothing was changed. To start with an empty store, move these \
            away too
            """
        case .foreign(let path):
            "\(path) is a database of another program; name another directory with --data-directory"
        case .otherVersion(let path, 0, _):
            """
            \(path) has tables and no schema version: it is damaged, or another program has changed it; nothing was changed. Put a \
            backup in its place with token-cache restore
            """
        case .otherVersion(let path, let version, let supported):
            """
            \(path) has schema version \(version), and this version of token-cache reads and writes version \(supported) only; \
            nothing was changed. Run the version that made it, or take its tokens over: token-cache export with that version, \
            token-cache import with this one
            """
        case .database(let path, let error):
            "the database \(path) cannot be opened: \(error)\(Self.advice(error))"
        }
    }

    private static func advice(_ error: SQLiteError) -> String {
        if error.isDiskFull { return "; free some space on its disk" }
        guard error.description.contains(SystemError.reason(EACCES)) else { return "" }
        return "; if another user's server or command has made it, give its folder to the server's user (chown -R)"
    }

    private static let adviceOnDamagedWAL = """
        Put a backup in the store's place with token-cache restore, or go on without these commits, of which a copy is kept: \
        token-cache serve --accept-damaged-wal, once
        """

    private static func adviceOnFailedCopy(_ reason: String) -> String {
        "That is accepted, but no copy of the WAL can be kept (\(reason)); mend that, and try again"
    }

    static func directory(_ error: DataDirectoryError) -> SQLiteOpenError { .shared(.directory(error)) }

    /// The error in the form that all stores throw.
    var general: StoreOpenError {
        switch self {
        case .shared(let error): error
        case .database(_, let error): .store(StoreFault("\(self)", cause: error.isDiskFull ? .diskFull : .database))
        default: .store(StoreFault("\(self)"))
        }
    }
}

/// Where a WAL is damaged, and how many acknowledged commits can no longer be read.
package struct WALDamage: Hashable, Sendable, Codable, CustomStringConvertible {
    /// The first frame whose checksum is wrong, counted from 1; 0 for the WAL's head.
    package let frame: Int
    /// Commits from there on whose marks are still found, and their frames; there may have been more.
    package let commits: Int
    package let frames: Int

    package var description: String {
        let place = frame == 0 ? "its head" : "its frame \(frame)"
        let rest = "\(commits) \(commits == 1 ? "commit" : "commits") with \(frames) \(frames == 1 ? "page" : "pages")"
        return "\(place) does not match its checksum, and at least \(rest) from there on cannot be read"
    }
}

/// Events that only a SQLite store has.
extension StoreEvent {
    /// The WAL is damaged and its end is dropped, which the operator has accepted.
    static func damagedWALAccepted(path: String, _ damage: WALDamage, copy: String) -> StoreEvent {
        .own(
            .fault,
            """
            the WAL \(path) is damaged: \(damage). These commits are lost, although clients were told that they are stored; \
            the operator has accepted that, and a copy of the WAL is kept as \(copy). The database is checked next
            """
        )
    }

    /// A user was erased, and so was the copy of a damaged WAL that may have contained the user.
    static func damagedWALErased(path: String) -> StoreEvent {
        .own(.warning, "a user was erased, and with it the copy of a damaged WAL that may contain the user: \(path)")
    }

    /// The files were removed, cut or replaced while they were open.
    static func filesLost(_ error: StoreError) -> StoreEvent {
        .own(
            .fault,
            "\(error). Clients are told that their tokens are not stored, and the server ends; its next start examines the files"
        )
    }
}
