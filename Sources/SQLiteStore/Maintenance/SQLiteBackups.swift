import Synchronization
import System
import TokenStore

/// Makes backups, on a thread of its own: their disk may be slow or hang, and nothing else waits for it.
actor SQLiteBackups {
    private let store: OpenDatabase
    private let executor = BlockingExecutor(label: "backup")

    /// Bytes that are copied in one step; clients' writes are committed between steps.
    private static let step = 1 << 20

    init(_ store: OpenDatabase) {
        self.store = store
    }

    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe executor.asUnownedSerialExecutor()
    }

    /// See `StoreAdministrator`.
    nonisolated func backUp(
        to path: String, checks: Bool, keys: String?, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreBackup {
        // Not on the thread, which a slow disk keeps busy.
        guard !store.state.isBackingUp.exchange(true, ordering: .acquiring) else {
            throw .refused("another backup is under way; try again when it is done")
        }
        defer { store.state.isBackingUp.store(false, ordering: .releasing) }
        // Before the backup, so that a mistaken path is noticed soon, and after it, when a key may have been added.
        if let keys { _ = try await copyKeys(into: keys) }
        var backup = try await make(path, checks: checks, progress)
        if let keys { backup.keys = try await copyKeys(into: keys) }
        return backup
    }

    private func copyKeys(into folder: String) throws(StoreError) -> [String] {
        try store.options.keyRing.copy(store.state.sealing.ring, into: folder, directory: store.directory.path)
    }

    private func make(
        _ path: String, checks: Bool, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreBackup {
        try refuseForeignFile(path)
        let temporary = path + BackupFile.partialSuffix
        guard FileStatus(temporary, followingLinks: false) == nil || BackupFile.mayBeUnfinished(temporary) else {
            throw .refused("\(temporary) is there and is no interrupted backup; name another file, or remove it first")
        }
        let file = try PrivateFile.create(temporary)
        // Has no effect once the file has its final name.
        defer { PrivateFile.discardDatabase(temporary) }
        do {
            return try await write(to: path, by: temporary, file, checks: checks, progress)
        } catch {
            store.recordBackup(isSuccessful: false)
            throw error
        }
    }

    private func write(
        to path: String, by temporary: String, _ file: borrowing FileDescriptor, checks: Bool,
        _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreBackup {
        // Checked only now, because removing what an interrupted backup left has made room.
        let size = try await store.writerThread.perform { (writer) throws(SQLiteError) in
            try writer.usedBytes() + writer.freeBytes()
        }
        try DiskRoom.check(forBackup: size, at: path, besides: store.path)
        do {
            try await copyPages(to: file, progress)
        } catch {
            try? await endCopy()
            throw error
        }
        try await endCopy()
        let tokens = try await finish(temporary, checks: checks)
        // By the descriptor that was open throughout, which reports whatever could not be written.
        do {
            try BlockingIO.synchronize(file.number)
        } catch {
            throw PrivateFile.refused("synced", temporary, error)
        }
        try PrivateFile.rename(temporary, to: path)
        return StoreBackup(path: path, tokens: tokens, bytes: FileStatus.size(of: path))
    }

    private func finish(_ path: String, checks: Bool) async throws(StoreError) -> Int {
        do {
            let copy = try SQLiteConnection(path: path, mode: .readWrite)
            return try await copy.interruptible { () throws(SQLiteError) in
                try BackupFile.finish(copy, checks: checks)
            }.get()
        } catch {
            if Task.isCancelled { throw BackupFile.interrupted }
            throw error.isNotADatabase ? BackupFile.damaged(error) : .write(StoreFault(error))
        }
    }

    /// Refuses to replace anything other than a backup, such as the key ring, the store itself or an unrelated file.
    private func refuseForeignFile(_ path: String) throws(StoreError) {
        let name = path.split(separator: "/").last ?? ""
        // Also if such a file does not exist yet: a backup with its name would later be read as that file.
        let ownNames = DataDirectory.fileNames + ["keys", "erasures", "audit-key"]
        let isOwnName =
            name.hasPrefix(DatabaseFileName.database) || ownNames.contains { name == $0 || name.hasPrefix($0 + ".") }
        func isIn(_ folder: String) -> Bool { FileIdentity.areSame(Path.folder(of: path), folder) }
        let erasures = ErasuresFile(beside: store.options.keyRing, directory: store.directory.path).path
        let isErasures = name == erasures.split(separator: "/").last ?? "" && isIn(Path.folder(of: erasures))
        guard !(isOwnName && isIn(store.directory.path)), !isErasures, !FileIdentity.areSame(path, store.path)
        else {
            throw .refused("\(path) is a file of the store itself; name another one")
        }
        switch FileStatus(path)?.kind {
        case nil: break
        case .folder: throw .refused("\(path) is a folder; name a file in it")
        case .file where FileStatus.size(of: path) == 0 || BackupFile.isOne(path): break
        default:
            throw .refused("\(path) is there and is no backup; name another file, or remove it first")
        }
    }

    private func copyPages(
        to file: borrowing FileDescriptor, _ progress: (StoreProgress) -> Void
    ) async throws(StoreError) {
        var step = try await nextStep(isFirst: true).get()
        while step.remaining > 0 {
            // The writer's thread copies while this one writes. No more than one step and what clients write meanwhile waits for a
            // slow disk.
            async let next = nextStep()
            try write(step.part, to: file)
            let size = SQLiteConnection.pageSize
            progress(StoreProgress(done: (step.total - step.remaining) * size, total: step.total * size))
            step = try await next.get()
            if Task.isCancelled { throw BackupFile.interrupted }
        }
        try write(step.part, to: file)
    }

    private func write(_ part: CopyFile.Part, to file: borrowing FileDescriptor) throws(StoreError) {
        do {
            try part.forEachPiece { (piece, offset) throws(SystemError) in
                try BlockingIO.write(piece[...], to: file.number, at: offset)
                BlockingIO.beginSynchronizing(file.number, piece.count, at: offset)
            }
            try BlockingIO.truncate(file.number, to: part.size)
        } catch {
            throw .refused("the backup cannot be written: \(error.reason)")
        }
    }

    /// Not on this actor's thread, which writes meanwhile; errors of the copy are not errors of the store.
    private nonisolated func nextStep(isFirst: Bool = false) async -> Result<DatabaseCopy.Step, StoreError> {
        do {
            return try await store.writerThread.perform(waitsForDisk: !isFirst) { (writer) throws(SQLiteError) in
                do throws(SQLiteError) {
                    if isFirst { writer.copy = try DatabaseCopy(of: writer.connection) }
                    guard let copy = writer.copy else {
                        return .failure(
                            .refused("the database was opened again after a fault; start the backup again"))
                    }
                    return .success(try copy.step(pages: Int32(Self.step / SQLiteConnection.pageSize)))
                } catch {
                    return .failure(.refused("the backup cannot be written: \(error)"))
                }
            }
        } catch {
            return .failure(error)
        }
    }

    private func endCopy() async throws(StoreError) {
        // If this were refused while the disk stalls, the copy would stay open.
        try await store.writerThread.perform(waitsForDisk: true) { (writer) throws(SQLiteError) in writer.copy = nil }
    }
}

extension OpenDatabase {
    /// A record that cannot be written, as on a full disk, is forgotten at the next start: the last backup then appears to be
    /// older than it is, never younger.
    func recordBackup(isSuccessful: Bool) {
        let record = state.lastBackup.withLock { last in
            let record = BackupRecord(endingNow: isSuccessful, after: last)
            last = record
            return record
        }
        try? record.write(in: directory.path)
    }
}

/// A backup: the database in one file, without a WAL.
enum BackupFile {
    /// Turns a fresh copy into a single file, which the caller syncs.
    ///
    /// - Parameter checks: Whether to check it.
    /// - Returns: How many tokens it holds.
    static func finish(_ copy: SQLiteConnection, checks: Bool) throws(SQLiteError) -> Int {
        // Leaves WAL mode, which the copy has from its source, so that no second file belongs to it; see `WALExaminer`.
        try copy.giveUpSafety()
        // Version 1.0 would take the number of checkpoints for a part of the version.
        try copy.execute("PRAGMA user_version = \(Schema.version); \(Schema.downgrade)")
        if checks { try checkStructure(copy) }
        return try copy.integer("SELECT tokens FROM store")
    }

    /// Opens a backup, of which nothing is changed and beside which no file is made.
    ///
    /// - Returns: The connection, and the version of its tables.
    static func open(_ path: String) throws(SQLiteOpenError) -> (connection: SQLiteConnection, version: Int) {
        let connection = try Schema.opening(path) { () throws(SQLiteError) in
            try SQLiteConnection(path: path, mode: .immutable)
        }
        return (connection, try Schema.check(connection, path: path))
    }

    /// Fails if a backup has damage that `verify` would find in its structure.
    ///
    /// - Parameter indexes: Whether to compare the indexes with their tables, which takes most of the time.
    static func checkStructure(_ connection: SQLiteConnection, indexes: Bool = true) throws(SQLiteError) {
        try connection.checkForMixedPages(indexes: indexes)
        if let damage = try Schema.damage(of: connection) { throw .damaged(damage) }
    }

    static func damaged(_ error: SQLiteError) -> StoreError {
        .refused(
            """
            the copy is damaged, and so most probably is the store: \(error). If its disk has failed, which the kernel's log shows \
            (dmesg), mend that first; token-cache verify lists the damage, and token-cache restore puts an earlier backup in \
            place of the store
            """
        )
    }

    /// Refuses a file that cannot be a backup, whatever its pages contain.
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
        guard TextFile.head(of: path, count: 19)?.last != 2 else {
            throw .refused(
                """
                \(path) is no backup, but the database of a running server, copied without its WAL: tokens that were stored last, or any \
                others, may be missing\(consequence); name a file that token-cache backup has written
                """
            )
        }
    }

    private static func isNone(_ path: String, _ consequence: String) -> StoreError {
        .refused("\(path) is no backup that token-cache has written\(consequence)")
    }

    /// What a restore adds to the reason of a refusal.
    static let consequence = "; nothing was replaced"

    /// The error of opening a backup, in words about backups.
    ///
    /// - Parameter consequence: As in `check`.
    static func refusal(_ error: SQLiteOpenError, of path: String, _ consequence: String = "") -> StoreError {
        switch error {
        case .notADatabase(_, let error): .refused("\(path) is damaged: \(error)\(consequence)")
        case .database(_, let error): .refused("\(path) cannot be read: \(error)\(consequence)")
        case .foreign: isNone(path, consequence)
        case .shared(.notSealed):
            .refused(
                """
                \(path) holds tokens in the clear, which only version 1.0 restores: put \(path) as tokens.db into a folder of its own, \
                and copy that with token-cache copy --from FOLDER --to NEW, which seals them; if users were erased, with the file \
                erasures beside it\(consequence)
                """)
        default: .refused("\(error)")
        }
    }

    /// Whether a file begins like a database of this program (sqlite.org/fileformat.html, section 1.3).
    static func isOne(_ path: String) -> Bool {
        guard let head = TextFile.head(of: path, count: 72), head.count == 72 else { return false }
        let application = head[68..<72].reduce(0) { $0 << 8 | Int($1) }
        return head.starts(with: Self.signature) && application == Schema.applicationID
    }

    /// Whether a database is a backup, or was one until a server of version 1.0 restored it; a store has a WAL from its first start on,
    /// and before that, restored or copied, no index of version 1.0 (see `finish`).
    static func isOne(_ connection: SQLiteConnection) throws(SQLiteError) -> Bool {
        guard try connection.text("PRAGMA journal_mode") != "wal" else { return false }
        return try connection.integer("SELECT count(*) FROM sqlite_schema WHERE name = 'session_by_expiration'") > 0
    }

    /// Whether a file may be an interrupted backup: SQLite writes the first page of a backup last.
    static func mayBeUnfinished(_ path: String) -> Bool {
        guard FileStatus(path, followingLinks: false)?.isFile == true,
            let head = TextFile.head(of: path, count: Self.signature.count)
        else { return false }
        return head == Self.signature || head.allSatisfy { $0 == 0 }
    }

    /// Removes the files that interrupted backups have left in a folder.
    static func discardUnfinished(in folder: String) {
        for name in Folder.names(in: folder) ?? [] where name.hasSuffix(partialSuffix) {
            let path = "\(folder)/\(name)"
            if mayBeUnfinished(path) { try? PrivateFile.remove(path) }
        }
    }

    /// The suffix of a backup's name until it is complete.
    static let partialSuffix = ".partial"

    static let interrupted = StoreError.refused("the backup was interrupted, and what it had written is removed")

    private static let signature = Array("SQLite format 3\0".utf8)
}

/// Refuses a backup that would fill its disk, before it begins.
enum DiskRoom {
    /// Bytes that stay free on the store's own disk, so that a backup there does not keep the server from storing
    /// tokens.
    private static let reserve = 16 << 20

    /// Refuses a backup that does not fit.
    ///
    /// - Parameters:
    ///   - bytes: The size of the backup.
    ///   - path: The path of the backup.
    ///   - store: The path of the store's database, whose disk keeps some room free.
    static func check(forBackup bytes: Int, at path: String, besides store: String) throws(StoreError) {
        let folder = Path.folder(of: path)
        guard let target = FileStatus(folder), let free = FileSystem(of: folder).freeBytes else { return }
        let isStoreDisk = FileStatus(store)?.identity.device == target.identity.device
        guard free < bytes + (isStoreDisk ? reserve : 0) else { return }
        let keptFree = ", and \(reserve >> 20) MiB must stay free for the store on the same disk"
        // The free space is rounded down and the need is rounded up, so that the message never seems to say that enough
        // is free.
        throw .refused(
            """
            the backup needs \((bytes + (1 << 20) - 1) >> 20) MiB\(isStoreDisk ? keptFree : ""), \
            but only \(free >> 20) MiB are free in \(folder); make room, or name a folder on another disk
            """
        )
    }
}
