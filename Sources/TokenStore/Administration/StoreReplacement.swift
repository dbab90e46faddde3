internal import Glibc

/// Puts another database in the place of a store's, which nobody has open.
///
/// The new one is made beside the old one, checked and synced before anything is replaced; a crash leaves the one or the
/// other, whole. The folder is locked meanwhile.
package struct StoreReplacement: ~Copyable {
    private let lock: DataDirectory
    private let directory: String
    private let database: String
    private let options: StoreOptions
    private let report: @Sendable (StoreEvent) -> Void

    package typealias Progress = StoreAdministrator.Progress

    /// What was put in place.
    package struct Outcome: Codable, Sendable {
        package var tokens: Int
        package var bytes: Int
        package var isSealed: Bool
    }

    /// Locks the folder; it is refused while a server runs.
    ///
    /// - Parameters:
    ///   - directory: The data directory, created if it is missing.
    ///   - options: As the server has them.
    ///   - report: Told of what the operator should know.
    package init(
        directory: String, options: StoreOptions, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) {
        lock = try DataDirectory(path: directory, creates: true)
        self.directory = directory
        self.options = options
        self.report = report
        database = directory + "/" + SQLiteTokenStore.fileName
    }

    private var new: String { database + ".new" }

    /// Removes what an interrupted attempt leaves; without effect once the new file has its final name.
    private func discardNew() {
        PrivateFile.discardDatabase(new)
    }

    // MARK: - Restoring

    /// Puts a backup in the place of the store.
    ///
    /// - Parameter path: What `StoreAdministrator.backUp` has written.
    package func restore(_ path: String, _ progress: (Progress) -> Void) throws(StoreError) -> Outcome {
        defer { discardNew() }
        guard PrivateFile.exists(path) else { throw .refused("there is no file \(path)") }
        guard !PrivateFile.areSame(path, database) else { throw .refused("\(path) is the store itself") }
        guard PrivateFile.size(path + "-wal") == 0 else {
            throw .refused(
                "\(path)-wal belongs to it and would be left out; restore a file that token-cache backup has written"
            )
        }
        discardNew()
        try PrivateFile.copy(path, to: new)
        let tokens = try check(path, progress)
        try PrivateFile.synchronize(new)
        try replace(erasing: false)
        return Outcome(tokens: tokens, bytes: PrivateFile.size(database), isSealed: options.isSealed)
    }

    /// Opens the copy of a backup, and every row of it with the key ring.
    private func check(_ path: String, _ progress: (Progress) -> Void) throws(StoreError) -> Int {
        let opened: StoreOpener.Opened
        do throws(StoreOpenError) {
            opened = try StoreOpener(directory: directory, database: new, options: options, report: report).openCopy()
        } catch {
            // Under the name that the operator knows.
            throw .refused("\(error)".replacing(new, with: path))
        }
        let connection = opened.committer.connection
        let tokens: Int
        do throws(SQLiteError) {
            tokens = try BackupFile.check(connection)
        } catch {
            throw .refused("\(path) is damaged: \(error)")
        }
        var unreadable = 0
        try forEachRow(of: connection, sealing: Sealing(opened.ring), total: tokens, progress) { (token, _) in
            if case .failure = token { unreadable += 1 }
        }
        guard unreadable == 0 else {
            throw .refused(
                """
                \(path) has \(unreadable) \(unreadable == 1 ? "row" : "rows") that the key ring \(options.keyRing.path) does \
                not open; nothing was replaced. Put the keys of that time back first
                """
            )
        }
        return tokens
    }

    // MARK: - Converting

    /// Seals a store in the clear, or the other way round.
    ///
    /// - Parameter isSealed: As it is to be; `options` otherwise apply.
    package func convert(isSealed: Bool, _ progress: (Progress) -> Void) throws(StoreError) -> Outcome {
        guard PrivateFile.exists(database) else { throw .unusable(.missing(path: database)) }
        defer { discardNew() }
        var (from, to) = (options, options)
        (from.isSealed, to.isSealed) = (!isSealed, isSealed)
        // No limit keeps out what is there already.
        (from.tokenLimit, to.tokenLimit, from.byteLimit, to.byteLimit) = (nil, nil, nil, nil)
        discardNew()
        try PrivateFile.create(new)
        let (source, target): (StoreOpener.Opened, StoreOpener.Opened)
        do throws(StoreOpenError) {
            source = try StoreOpener(directory: directory, database: database, options: from, report: report)
                .reopen(from.retention)
            target = try StoreOpener(directory: directory, database: new, options: to, report: report).openCopy()
        } catch {
            switch error {
            case .sealed: throw .refused("the store \(database) is sealed already")
            case .notSealed: throw .refused("the store \(database) is in the clear already")
            default: throw .unusable(error)
            }
        }
        let tokens = source.committer.tokenCount
        try copy(source, to: target, progress)
        try PrivateFile.synchronize(new)
        try replace(erasing: isSealed)
        return Outcome(tokens: tokens, bytes: PrivateFile.size(database), isSealed: isSealed)
    }

    private func copy(
        _ source: StoreOpener.Opened, to target: StoreOpener.Opened, _ progress: (Progress) -> Void
    ) throws(StoreError) {
        var rows: [Row] = []
        var fault: StoreError?
        var coder = RowCoder(Sealing(target.ring))
        try forEachRow(
            of: source.committer.connection, sealing: Sealing(source.ring), total: source.committer.tokenCount, progress
        ) { (token, writtenAt) in
            do throws(SealingError) {
                rows.append(try coder.row(of: try token.get(), writtenAt: writtenAt))
                if rows.count >= 1_000 { fault = Self.write(&rows, to: target.committer) ?? fault }
            } catch {
                fault = .sealing(error)
            }
        }
        fault = Self.write(&rows, to: target.committer) ?? fault
        // A row that does not open would be lost.
        if let fault { throw .refused("\(fault); nothing was replaced") }
    }

    private static func write(_ rows: inout [Row], to committer: Committer) -> StoreError? {
        defer { rows.removeAll(keepingCapacity: true) }
        do throws(SQLiteError) {
            for case .failure(let error) in try committer.commit(rows) { return error }
            return nil
        } catch {
            return .write(error)
        }
    }

    // MARK: - Rows and files

    private func forEachRow(
        of connection: SQLiteConnection, sealing: Sealing, total: Int, _ progress: (Progress) -> Void,
        _ body: (Result<Token, SealingError>, _ writtenAt: Int64) -> Void
    ) throws(StoreError) {
        var coder = RowCoder(sealing)
        var done = 0
        do throws(SQLiteError) {
            let select = try SQLiteStatement("SELECT key, written_at, key_number, value FROM token", on: connection)
            while try select.step() {
                let key = select.blob(at: 0)
                let token: Result<Token, SealingError>
                do throws(SealingError) {
                    token = .success(
                        try select.withBlob(at: 3) { (value) throws(SealingError) in
                            try coder.token(of: value, keyNumber: select.integer(at: 2), key: key)
                        }
                    )
                } catch {
                    token = .failure(error)
                }
                body(token, Int64(select.integer(at: 1)))
                done += 1
                if done % 1_000 == 0 { progress(Progress(done: min(done, total), total: total)) }
            }
        } catch {
            throw .read(error)
        }
        progress(Progress(done: total, total: total))
    }

    /// Moves the old database's log into it; a damaged one cannot be read, which may be why it is replaced.
    private func settleLog() throws(StoreError) {
        guard let connection = try? SQLiteConnection(path: database, mode: .readWrite),
            (try? connection.integer("SELECT count(*) FROM sqlite_schema")) != nil
        else { return }
        do throws(SQLiteError) {
            let outcome = try connection.checkpoint(.truncate, waiting: 1_000)
            // Without a log there is nothing to move.
            guard outcome == .complete || PrivateFile.size(database + "-wal") == 0 else {
                throw .damaged("its log is held by another program")
            }
        } catch {
            throw .refused("the log of \(database) cannot be moved into it, and nothing was replaced: \(error)")
        }
    }

    /// Has the new file take the old one's place.
    ///
    /// A log that stays behind would be taken for the new file's and damage it. So the old one is moved into its database
    /// first, which is then complete without it, and is removed before the new file comes.
    ///
    /// - Parameter erasing: Overwrites what the old file held.
    private func replace(erasing: Bool) throws(StoreError) {
        if PrivateFile.exists(database) {
            try settleLog()
            for suffix in ["-wal", "-shm"] { try PrivateFile.remove(database + suffix) }
            DataDirectory.synchronize(directory)
        }
        let old = erasing ? unsafe open(database, O_WRONLY | O_CLOEXEC) : -1
        defer { if old >= 0 { close(old) } }
        try PrivateFile.rename(new, to: database)
        if old >= 0 { PrivateFile.overwrite(old) }
    }
}
