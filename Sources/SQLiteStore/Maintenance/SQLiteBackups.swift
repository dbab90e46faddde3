import Glibc
import Synchronization
import System
import TokenStore

/// Makes backups, on a thread of its own: their disk may be slow or hang, and nothing else waits for it.
actor SQLiteBackups {
    private let store: OpenDatabase
    private let executor = BlockingExecutor(label: "backup")
    private let checks = LongReads()

    /// Bytes that are copied in one step; clients' writes are committed between steps.
    private static let step = 1 << 20

    init(_ store: OpenDatabase) {
        self.store = store
    }

    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe executor.asUnownedSerialExecutor()
    }

    func backUp(
        to path: String, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreBackup {
        guard !store.state.isBackingUp.exchange(true, ordering: .acquiring) else {
            throw .refused("another backup is under way; try again when it is done")
        }
        defer { store.state.isBackingUp.store(false, ordering: .releasing) }
        try refuseForeignFile(path)
        let temporary = path + BackupFile.partialSuffix
        guard FileStatus(temporary, followingLinks: false) == nil || BackupFile.mayBeUnfinished(temporary) else {
            throw .refused("\(temporary) is there and is no interrupted backup; name another file, or remove it first")
        }
        try PrivateFile.create(temporary)
        // Has no effect once the file has its final name.
        defer { PrivateFile.discardDatabase(temporary) }
        do throws(StoreError) {
            return try await write(to: path, by: temporary, progress)
        } catch {
            store.recordBackup(isSuccessful: false)
            throw error
        }
    }

    private func write(
        to path: String, by temporary: String, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreBackup {
        // Checked only now, because removing what an interrupted backup left has made room.
        let size = try await store.writerThread.perform { (writer) throws(SQLiteError) in
            try writer.usedBytes() + writer.freeBytes()
        }
        try DiskRoom.check(forBackup: size, at: path, besides: store.path)
        try await withCopy { (writer) throws(SQLiteError) -> Result<Void, StoreError> in
            writer.copy = try DatabaseCopy(of: writer.connection)
            return .success(())
        }
        do throws(StoreError) {
            try await copyPages(to: temporary, progress)
        } catch {
            try? await endCopy()
            throw error
        }
        try await endCopy()
        let finished = await checks.read(temporary, mode: .readWrite) { (copy) throws(SQLiteError) in
            try BackupFile.finish(copy)
        }
        let tokens: Int
        do throws(SQLiteError) {
            tokens = try finished.get()
        } catch {
            if Task.isCancelled { throw BackupFile.interrupted }
            throw error.isNotADatabase ? BackupFile.damaged(error) : .write(StoreFault(error))
        }
        try PrivateFile.synchronize(temporary)
        try PrivateFile.rename(temporary, to: path)
        return StoreBackup(path: path, tokens: tokens, bytes: FileStatus.size(of: path))
    }

    /// Refuses to replace anything other than a backup, such as the key ring, the store itself or an unrelated file.
    private func refuseForeignFile(_ path: String) throws(StoreError) {
        let name = path.split(separator: "/").last ?? ""
        let isOwnName = DataDirectory.fileNames.contains(String(name)) || name.hasPrefix(DatabaseFileName.database)
        let isInOwnFolder = FileIdentity.areSame(Path.folder(of: path), store.directory.path)
        guard !(isOwnName && isInOwnFolder), !FileIdentity.areSame(path, store.path)
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
        to path: String, _ progress: (StoreProgress) -> Void
    ) async throws(StoreError) {
        while true {
            let (remaining, total, part) = try await withCopy {
                (writer) throws(SQLiteError) -> Result<DatabaseCopy.Step, StoreError> in
                guard let copy = writer.copy else {
                    return .failure(.refused("the database was opened again after a fault; start the backup again"))
                }
                return .success(try copy.step(pages: Int32(Self.step / SQLiteConnection.pageSize)))
            }
            // Only then the next step, so that no more waits for a slow disk than one step and what clients write meanwhile.
            try write(part, to: path)
            let size = SQLiteConnection.pageSize
            progress(StoreProgress(done: (total - remaining) * size, total: total * size))
            if remaining == 0 { return }
            if Task.isCancelled { throw BackupFile.interrupted }
        }
    }

    private func write(_ part: CopyFile.Part, to path: String) throws(StoreError) {
        do throws(SystemError) {
            let file = try FileDescriptor(opening: path, O_WRONLY | O_NOFOLLOW)
            for (offset, page) in part.pages.sorted(by: { $0.key < $1.key }) {
                try BlockingIO.write(page[...], to: file.number, at: offset)
            }
            try BlockingIO.truncate(file.number, to: part.size)
        } catch {
            throw .refused("the backup cannot be written: \(error.reason)")
        }
    }

    /// Runs a closure on the writer's thread; errors of the copy are not errors of the store.
    private func withCopy<Value: Sendable>(
        _ body: @escaping @Sendable (WriterConnection) throws(SQLiteError) -> Result<Value, StoreError>
    ) async throws(StoreError) -> Value {
        try await store.writerThread.perform { (writer) throws(SQLiteError) -> Result<Value, StoreError> in
            do throws(SQLiteError) {
                return try body(writer)
            } catch {
                return .failure(.refused("the backup cannot be written: \(error)"))
            }
        }.get()
    }

    private func endCopy() async throws(StoreError) {
        try await store.writerThread.perform { (writer) throws(SQLiteError) in writer.copy = nil }
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
    /// Turns a fresh copy into a single file, and checks it.
    ///
    /// - Returns: How many tokens it holds.
    static func finish(_ copy: SQLiteConnection) throws(SQLiteError) -> Int {
        // Leaves WAL mode, which the copy has from its source, so that no second file belongs to it; see `WALExaminer`.
        try copy.leaveWAL()
        // Version 1.0 would take the number of checkpoints for a part of the version.
        try copy.execute("PRAGMA user_version = \(Schema.version)")
        try checkStructure(copy)
        return try copy.integer("SELECT tokens FROM store")
    }

    /// Fails if a backup has damage that `verify` would find in its structure.
    static func checkStructure(_ connection: SQLiteConnection) throws(SQLiteError) {
        try connection.checkForMixedPages()
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
    /// - Parameter copy: The path of the backup's copy, if that was opened; nil if the backup itself was.
    static func refusal(_ error: SQLiteOpenError, of path: String, copiedTo copy: String? = nil) -> StoreError {
        let consequence = copy == nil ? "" : consequence
        switch error {
        case .notADatabase(_, let error): return .refused("\(path) is damaged: \(error)\(consequence)")
        case .database(let opened, let error): return .refused("\(opened) cannot be read: \(error)\(consequence)")
        case .foreign: return isNone(path, consequence)
        default: return .refused("\(error)".replacing(copy ?? path, with: path))
        }
    }

    /// Whether a file begins like a database of this program (sqlite.org/fileformat.html, section 1.3).
    static func isOne(_ path: String) -> Bool {
        guard let head = TextFile.head(of: path, count: 72), head.count == 72 else { return false }
        let application = head[68..<72].reduce(0) { $0 << 8 | Int($1) }
        return head.starts(with: Self.signature) && application == Schema.applicationID
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
            if mayBeUnfinished(path) { _ = unsafe unlink(path) }
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
