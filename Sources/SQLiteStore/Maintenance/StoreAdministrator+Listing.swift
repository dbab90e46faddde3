internal import Glibc
internal import Synchronization
internal import System
package import TokenStore

extension StoreAdministrator {
    /// A token as it lies in the store.
    package struct Entry: Sendable {
        /// Its slot, behind which the next page begins.
        package let slot: Int64
        /// Seconds since 1970.
        package let writtenAt: Int64
        /// When it expires by its own account, in seconds since 1970.
        package let expiresAt: Int64?
        /// Or why it cannot be opened.
        package let token: Result<Token, SealingError>
        /// The key that sealed it, 0 in the clear, and the number of that seal; nil for a row of the earlier form.
        let seal: (keyNumber: Int, number: Int64?)
    }

    /// Some tokens.
    package struct Page: Sendable {
        package var entries: [Entry] = []
        /// There are none behind them.
        package var isLast = true
    }

    /// Some tokens, in an order that says nothing of them.
    ///
    /// - Parameters:
    ///   - slot: The slot after which to begin, 0 for the first.
    ///   - limit: How many at most; fewer when they are large.
    package func page(after slot: Int64, limit: Int) throws(StoreError) -> Page {
        let connection = try reader().connection
        var coder = RowCoder(store.state.sealing)
        return try reading { () throws(SQLiteError) in
            let select = try SQLiteStatement(
                """
                SELECT slot, key, written_at, expires_at, key_number, value FROM token
                WHERE slot > ?1 ORDER BY slot LIMIT ?2
                """,
                on: connection
            )
            try select.bind(slot, at: 1)
            // One more, to see whether there is.
            try select.bind(Int64(limit) + 1, at: 2)
            var page = Page()
            var bytes = 0
            while try select.step() {
                if page.entries.count == limit || bytes >= Committer.stepBytes {
                    page.isLast = false
                    break
                }
                let (slot, key) = (Int64(select.integer(at: 0)), select.blob(at: 1))
                let times = RowTimes(
                    writtenAt: Int64(select.integer(at: 2)), expiresAt: select.optionalInteger(at: 3)
                )
                let keyNumber = select.integer(at: 4)
                var seal: (keyNumber: Int, number: Int64?) = (keyNumber, nil)
                let token: Result<Token, SealingError>
                do throws(SealingError) {
                    token = .success(
                        try select.withBlob(at: 5) { (value) throws(SealingError) in
                            bytes += value.count
                            let token = try coder.token(
                                of: value, keyNumber: keyNumber, key: key, slot: slot, times: times
                            )
                            if keyNumber > 0 { seal.number = try TokenSealer.number(of: value).map { Int64($0) + 1 } }
                            return token
                        }
                    )
                } catch {
                    token = .failure(error)
                }
                page.entries.append(
                    Entry(
                        slot: slot, writtenAt: times.writtenAt, expiresAt: times.expiresAt, token: token, seal: seal
                    )
                )
            }
            return page
        }
    }

    /// The store in numbers.
    package struct Statistics: Codable, Sendable {
        package var tokens: Int
        /// Bytes of the database, of which so many are free pages.
        package var databaseBytes: Int
        package var freeBytes: Int
        package var logBytes: Int
        package var isSealed: Bool
        /// The key that seals; nil in the clear.
        package var newestKey: Int?
        package var sqliteVersion: String
        package var schemaVersion: Int
        /// Rows that did not open when a client asked for them, since the start.
        package var unreadableReads: Int
        package var directory: String
    }

    package func statistics() async throws(StoreError) -> Statistics {
        let (tokens, used, free) = try await store.writer.perform { (committer) throws(SQLiteError) in
            (committer.tokenCount, try committer.usedBytes(), try committer.freeBytes())
        }
        return Statistics(
            tokens: tokens, databaseBytes: used + free, freeBytes: free,
            logBytes: FileStatus.size(of: store.path + "-wal"), isSealed: store.state.sealing.ring != nil,
            newestKey: store.state.sealing.ring?.newest.number, sqliteVersion: SQLiteLibrary.version,
            schemaVersion: Schema.version, unreadableReads: store.state.unreadableCount.load(ordering: .relaxed),
            directory: store.directory.path
        )
    }

    // MARK: - Verifying

    /// What a look at everything has found.
    package struct Verification: Codable, Sendable {
        package var tokens = 0
        /// Rows that do not open, by what is wrong with them.
        package var unreadable: [String: Int] = [:]
        /// What SQLite's integrity check says; empty when all is well.
        package var damages: [String] = []
        /// Rows of the form of an earlier version, whose times can be changed unnoticed; sealing anew gives them another one.
        package var unbound = 0
        /// The number of tokens that the store has counted, when it is not the number of rows.
        package var wrongCount: Int?
        /// Copies of damaged logs that are kept beside the store, in which there may be what it lacks.
        ///
        /// Nil from an earlier version.
        package var keptLogs: [String]?

        /// None of these was found.
        package var isSound = true
    }

    /// Rows that are looked at before others get their turn.
    private static let verificationBatch = 500

    /// Checks the database's structure, and opens every row.
    package func verify(_ progress: (Progress) -> Void) async throws(StoreError) -> Verification {
        var result = Verification()
        let total = try await statistics().tokens
        progress(Progress(done: 0, total: total))
        let connection = try reader().connection
        result.damages = try await readingForLong(connection) { () throws(SQLiteError) in
            let check = try SQLiteStatement("PRAGMA integrity_check(20)", on: connection)
            var damages: [String] = []
            while try check.step() { damages.append(String(decoding: check.blob(at: 0), as: UTF8.self)) }
            if damages == ["ok"] { damages = [] }
            let doubles = try connection.integer(
                """
                SELECT count(*) FROM token AS one JOIN token AS other
                ON other.slot BETWEEN one.slot + 1 AND one.slot + \(Slots.count - 1) AND other.key = one.key
                """
            )
            if doubles > 0 { damages.append("\(doubles) \(doubles == 1 ? "token is" : "tokens are") there twice") }
            return damages
        }
        // Also where no row belongs.
        var slot = Int64.min
        var uncounted = 0
        while true {
            let page = try page(after: slot, limit: Self.verificationBatch)
            for entry in page.entries {
                result.tokens += 1
                switch entry.token {
                case .failure(let error): result.unreadable["\(error)", default: 0] += 1
                case .success where entry.seal.keyNumber == 0: break
                case .success:
                    guard let number = entry.seal.number else {
                        result.unbound += 1
                        continue
                    }
                    // After the row was read: the count is ahead of every row that was written.
                    if number > store.state.sealing.seals.count(of: entry.seal.keyNumber).value { uncounted += 1 }
                }
            }
            progress(Progress(done: min(result.tokens, total), total: total))
            guard !page.isLast, let last = page.entries.last else { break }
            slot = last.slot
            if Task.isCancelled { throw .refused("verifying was interrupted") }
            await Task.yield()
        }
        if uncounted > 0 {
            result.damages.append(
                """
                \(uncounted) \(uncounted == 1 ? "row was" : "rows were") sealed later than the store has counted: a part of \
                the store was replaced by one of another time
                """
            )
        }
        // Only a store that stood still meanwhile can be counted.
        let after = try await statistics().tokens
        if after == total && result.tokens != total { result.wrongCount = total }
        result.keptLogs = KeptLog.all(of: store.path)
        result.isSound = result.unreadable.isEmpty && result.damages.isEmpty && result.wrongCount == nil
        return result
    }
}
