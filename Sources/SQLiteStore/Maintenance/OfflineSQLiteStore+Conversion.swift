internal import Cryptography
internal import System
package import TokenStore

/// Sealing a store that is in the clear, and the reverse: a new database takes its place.
extension OfflineSQLiteStore {
    package func convert(isSealed: Bool, _ progress: (StoreProgress) -> Void) throws(StoreError) -> StoreReplacement {
        guard FileStatus.exists(database.path) else { throw .unusable(.missing(path: database.path)) }
        // If unsealing fails, the unfinished database has rows in the clear.
        defer { database.discardNew(erasing: !isSealed) }
        var (from, to) = (options, options)
        (from.isSealed, to.isSealed) = (!isSealed, isSealed)
        // Limits do not apply to existing tokens.
        (from.tokenLimit, to.tokenLimit, from.byteLimit, to.byteLimit) = (nil, nil, nil, nil)
        let source = try opened { () throws(SQLiteOpenError) in
            try StoreOpener(directory: directory.path, database: database.path, options: from, report: report)
                .reopen(from.retention)
        }
        if source.mayBeMixed {
            do throws(SQLiteError) {
                try source.writer.connection.checkForMixedPages()
            } catch {
                // Rows that cannot be found would be omitted.
                throw .unusable(SQLiteOpenError.notADatabase(path: database.path, error).shared)
            }
        }
        database.discardNew()
        let used = try Self.writing { () throws(SQLiteError) in try source.writer.usedBytes() }
        // The new database may be much smaller: pages of the present one may be half empty, and rows in the clear are shorter.
        try DiskRoom.check(forConversion: used / (isSealed ? 2 : 4), at: database.new)
        try PrivateFile.create(database.new)
        let target = try opened { () throws(SQLiteOpenError) in
            try StoreOpener(directory: directory.path, database: database.new, options: to, report: report).openCopy()
        }
        do throws(SQLiteError) {
            // After a fault the whole copy is discarded.
            try target.writer.connection.prepareForBulkWriting()
            try Schema.raiseVersionLimit(
                try Schema.versionLimit(of: source.writer.connection), in: target.writer.connection)
            // The new database remembers when the clock was last right. Otherwise it would trust a clock that is wrong now.
            if let look = source.writer.lastClockLook { try target.writer.saveClockLook(look) }
        } catch {
            throw .write(StoreFault(error))
        }
        try copy(source, to: target, isSealed: isSealed, progress)
        try copySessions(source, to: target)
        try PrivateFile.synchronize(database.new)
        try database.replace(erasing: isSealed)
        let copies = DamagedWALCopies.all(of: database.path)
        if isSealed && !copies.isEmpty { report(.clearCopiesKept(paths: copies)) }
        return StoreReplacement(
            tokens: target.writer.tokenCount, bytes: FileStatus.size(of: database.path), isSealed: isSealed)
    }

    /// Rephrases errors for a conversion.
    private func opened(_ open: () throws(SQLiteOpenError) -> StoreOpener.Opened) throws(StoreError)
        -> StoreOpener.Opened
    {
        do throws(SQLiteOpenError) {
            return try open()
        } catch {
            switch error {
            case .sealed: throw .refused("the store \(database.path) is sealed already")
            case .notSealed: throw .refused("the store \(database.path) is in the clear already")
            default: throw .unusable(error.shared)
            }
        }
    }

    private func copy(
        _ source: StoreOpener.Opened, to target: StoreOpener.Opened, isSealed: Bool, _ progress: (StoreProgress) -> Void
    ) throws(StoreError) {
        let total = source.writer.tokenCount
        var sorter = try Self.writing { () throws(SQLiteError) in
            try RowSorter(
                ofDatabase: FileStatus.size(of: database.path), at: database.rows, isSecret: !isSealed,
                batchBytes: batchBytes)
        }
        var coder = RowCoder(Sealing(target.keys))
        // Half of the work is to read the rows, the other half to write them.
        func showRead(_ read: StoreProgress) { progress(StoreProgress(done: read.done / 2, total: total)) }
        try forEachRow(
            of: source.writer.connection, sealing: Sealing(source.keys), total: total, showRead
        ) { (token, stored) throws(StoreError) in
            let row = try Self.row(of: token, stored, &coder)
            try Self.writing { () throws(SQLiteError) in try sorter.add(row) }
        }
        let index = target.keys.index.identity
        var written = 0
        while let rows = try Self.writing({ () throws(SQLiteError) in try sorter.nextBatch(index: index) }) {
            let outcomes = try Self.writing { () throws(SQLiteError) in try target.writer.commit(rows) }
            for case .failure(let error) in outcomes { throw Self.notReplaced(error) }
            written += rows.count
            progress(StoreProgress(done: min(total, (total + written) / 2), total: total))
        }
        try Self.writing { () throws(SQLiteError) in try target.writer.storeVersion() }
    }

    /// The row of a token in the new database.
    private static func row(
        of token: Result<Token, SealingError>, _ stored: StoredRow, _ coder: inout RowCoder
    ) throws(StoreError) -> Row {
        do throws(SealingError) {
            var row = try coder.row(of: try token.get(), writtenAt: stored.times.writtenAt)
            row.version = stored.version
            return row
        } catch {
            // A row that cannot be opened would be missing in the new database.
            throw notReplaced(.sealing(error))
        }
    }

    /// Rephrases errors of the new database, and of the files that its rows are sorted in.
    private static func writing<Result>(_ body: () throws(SQLiteError) -> Result) throws(StoreError) -> Result {
        do throws(SQLiteError) {
            return try body()
        } catch {
            throw notReplaced(.write(StoreFault(error)))
        }
    }

    private static func notReplaced(_ error: StoreError) -> StoreError {
        .refused("\(error)\(consequence)")
    }
}
