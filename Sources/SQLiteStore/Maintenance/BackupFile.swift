internal import System
internal import TokenStore

/// A backup: the database in one file, without a WAL.
enum BackupFile {
    /// Turns a fresh copy into a single file, checks and syncs it; fails if the task is cancelled.
    ///
    /// - Returns: How many tokens it holds.
    nonisolated(nonsending) static func finish(_ path: String) async throws(StoreError) -> Int {
        let tokens: Int
        do throws(SQLiteError) {
            let connection = try SQLiteConnection(path: path, mode: .readWrite)
            // Leaves WAL mode, which the copy has from its source, so that no second file belongs to it.
            _ = try connection.text("PRAGMA journal_mode = DELETE")
            // A WAL of the store beside it would not belong to it.
            try connection.execute("PRAGMA user_version = \(Schema.userVersion(mark: StateMark.random()))")
            let checked = await connection.interruptible { () throws(SQLiteError) in try connection.checkIntegrity() }
            try checked.get()
            tokens = try connection.integer("SELECT tokens FROM store")
        } catch {
            if Task.isCancelled { throw interrupted }
            throw error.isNotADatabase ? damaged(error) : .write(StoreFault(error))
        }
        try PrivateFile.synchronize(path)
        return tokens
    }

    private static func damaged(_ error: SQLiteError) -> StoreError {
        .refused(
            """
            the copy is damaged, and so most probably is the store: \(error). If its disk has failed, which the kernel's log shows \
            (dmesg), mend that first; token-cache verify lists the damage, and token-cache restore puts an earlier backup in \
            place of the store
            """
        )
    }

    /// Refuses what cannot be a backup, whatever is in its pages.
    ///
    /// - Parameters:
    ///   - path: The file's path.
    ///   - consequence: The end of the message, such as "; nothing was replaced".
    static func check(_ path: String, _ consequence: String = "") throws(StoreError) {
        switch FileStatus(path)?.kind {
        case .file: break
        case nil: throw .refused("there is no file \(path)")
        default: throw .refused("\(path) is no file")
        }
        guard FileStatus.size(of: path + "-wal") == 0 else {
            throw .refused(
                "\(path)-wal belongs to it and would be left out; name a file that token-cache backup has written"
            )
        }
        // An empty file, as a broken transfer leaves it, would be taken for a new store.
        guard FileStatus.size(of: path) > 0 else { throw .refused("\(path) is empty\(consequence)") }
        guard TextFile.head(of: path, count: 1) != nil else { throw PrivateFile.refused("read", path) }
        guard isOne(path) else { throw isNone(path, consequence) }
    }

    static func isNone(_ path: String, _ consequence: String = "") -> StoreError {
        .refused("\(path) is no backup that token-cache has written\(consequence)")
    }

    /// Whether a file begins as a database of this program (sqlite.org/fileformat.html, section 1.3).
    static func isOne(_ path: String) -> Bool {
        guard let head = TextFile.head(of: path, count: 72), head.count == 72 else { return false }
        let application = head[68..<72].reduce(0) { $0 << 8 | Int($1) }
        return head.starts(with: Self.signature) && application == Schema.applicationID
    }

    /// Whether a file may be a backup that was interrupted, whose first page SQLite writes last.
    static func mayBeUnfinished(_ path: String) -> Bool {
        guard let head = TextFile.head(of: path, count: Self.signature.count) else { return false }
        return head == Self.signature || head.allSatisfy { $0 == 0 }
    }

    /// The suffix of a backup's name until it is complete.
    static let partialSuffix = ".partial"

    static let interrupted = StoreError.refused("the backup was interrupted, and what it had written is removed")

    private static let signature = Array("SQLite format 3\0".utf8)
}
