internal import Glibc
internal import Synchronization
internal import System
package import TokenStore

extension SQLiteAdministrator {
    /// Bytes that are copied in one step; clients' writes are committed between steps.
    private static let backupStep = 1 << 20

    package func backUp(
        to path: String, isRecorded: Bool, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreBackup {
        guard !store.state.isBackingUp.exchange(true, ordering: .acquiring) else {
            throw .refused("another backup is under way; try again when it is done")
        }
        defer { store.state.isBackingUp.store(false, ordering: .releasing) }
        try refuseForeignFile(path)
        let temporary = try temporaryPath(for: path)
        try PrivateFile.create(temporary)
        // Has no effect once the file has its final name.
        defer { PrivateFile.discardDatabase(temporary) }
        do throws(StoreError) {
            let backup = try await write(to: path, by: temporary, progress)
            if isRecorded { recordBackup(isSuccessful: true) }
            return backup
        } catch {
            recordBackup(isSuccessful: false)
            throw error
        }
    }

    /// A record that cannot be written, as on a full disk, is forgotten at the next start: the last backup then appears to be
    /// older than it is, never younger.
    package func recordBackup(isSuccessful: Bool) {
        let record = store.state.lastBackup.withLock { last in
            let record = BackupRecord(endingNow: isSuccessful, after: last)
            last = record
            return record
        }
        try? record.write(in: store.directory.path)
    }

    private func write(
        to path: String, by temporary: String, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreBackup {
        // Checked only now, because removing what an interrupted backup left has made room.
        try DiskRoom.check(forBackup: try await databaseSize(), at: path, besides: store.path)
        _ = try await withCopy { (writer) throws(SQLiteError) -> CopyOutcome<Bool> in
            writer.copy = try DatabaseCopy(of: writer.connection, to: temporary)
            return .success(true)
        }
        do throws(StoreError) {
            try await copyPages(progress)
        } catch {
            try? await endCopy()
            throw error
        }
        try await endCopy()
        let tokens = try await longReads.finishBackup(temporary)
        try PrivateFile.rename(temporary, to: path)
        return StoreBackup(path: path, tokens: tokens, bytes: FileStatus.size(of: path))
    }

    /// Refuses to replace anything other than a backup, such as the key ring, the store itself or an unrelated file.
    private func refuseForeignFile(_ path: String) throws(StoreError) {
        // The database may be a link into another folder, with its files there.
        let own =
            (["", "-wal", "-shm", "-journal", DatabaseFileName.checkSuffix] + DatabaseFile.temporarySuffixes)
            .map { store.path + $0 }
            + [
                store.options.keyRing.path,
                ErasuresFile(beside: store.options.keyRing, directory: store.directory.path).path,
                DatabaseLock.file(ofLinked: store.path),
            ]
        let isOwnName = (DataDirectory.fileNames + DatabaseFileName.all).contains { path.hasSuffix("/" + $0) }
        let isInOwnFolder = FileIdentity.areSame(Path.folder(of: path), store.directory.path)
        guard !own.contains(where: { $0 == path || FileIdentity.areSame($0, path) }), !(isOwnName && isInOwnFolder)
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

    /// The path of a backup until it is complete; an interrupted backup may have left a file there.
    private func temporaryPath(for path: String) throws(StoreError) -> String {
        let temporary = path + BackupFile.partialSuffix
        switch FileStatus(temporary)?.kind {
        case nil: return temporary
        case .file where BackupFile.mayBeUnfinished(temporary): return temporary
        default:
            throw .refused(
                """
                \(temporary), where the backup is to be written first, is there and is no unfinished backup; name another \
                file, or remove it first
                """
            )
        }
    }

    /// Bytes of the database, with what is still in the WAL.
    private func databaseSize() async throws(StoreError) -> Int {
        try await store.writerThread.perform { (writer) throws(SQLiteError) in
            try writer.connection.integer("PRAGMA page_count") * writer.connection.integer("PRAGMA page_size")
        }
    }

    private func copyPages(_ progress: (StoreProgress) -> Void) async throws(StoreError) {
        while true {
            let (remaining, total, pageSize) = try await withCopy {
                (writer) throws(SQLiteError) -> CopyOutcome<(Int, Int, Int)> in
                guard let copy = writer.copy else {
                    return .refused("the database was opened again after a fault; start the backup again")
                }
                let (remaining, total) = try copy.step(pages: Int32(Self.backupStep / writer.pageSize))
                return .success((remaining, total, writer.pageSize))
            }
            progress(StoreProgress(done: (total - remaining) * pageSize, total: total * pageSize))
            if remaining == 0 { return }
            if Task.isCancelled { throw BackupFile.interrupted }
        }
    }

    private enum CopyOutcome<Value: Sendable>: Sendable {
        case success(Value)
        case refused(String)
        /// An error of the copy, not of the store.
        case failed(SQLiteError)
    }

    /// Runs a closure on the writer's thread; errors of the copy are not errors of the store.
    private func withCopy<Value>(
        _ body: @escaping @Sendable (WriterConnection) throws(SQLiteError) -> CopyOutcome<Value>
    ) async throws(StoreError) -> Value {
        let outcome = try await store.writerThread.perform { (writer) throws(SQLiteError) -> CopyOutcome<Value> in
            do throws(SQLiteError) {
                return try body(writer)
            } catch {
                return .failed(error)
            }
        }
        switch outcome {
        case .success(let value): return value
        case .refused(let reason): throw .refused(reason)
        case .failed(let error): throw .refused("the backup cannot be written: \(error)")
        }
    }

    private func endCopy() async throws(StoreError) {
        try await store.writerThread.perform { (writer) throws(SQLiteError) in writer.copy = nil }
    }
}
