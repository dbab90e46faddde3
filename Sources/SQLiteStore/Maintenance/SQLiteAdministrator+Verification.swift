internal import Synchronization
package import TokenStore

extension SQLiteAdministrator {
    /// Rows that are checked before other requests are served.
    private static let verificationBatch = 500

    package func verify(
        _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreVerification {
        var result = StoreVerification()
        let before = try await counts()
        let total = before.tokens
        progress(StoreProgress(done: 0, total: total))
        result.damages = try await structuralDamages()
        // Before the first valid slot, to find misplaced rows.
        var slot = Int64.min
        var duplicates = DuplicateTokens()
        while true {
            let (rows, isLast) = try rows(after: slot, limit: Self.verificationBatch)
            for row in rows {
                result.tokens += 1
                duplicates.look(at: (row.slot, row.key))
                if case .failure(let error) = row.token { result.unreadable["\(error)", default: 0] += 1 }
            }
            progress(StoreProgress(done: min(result.tokens, total), total: total))
            guard !isLast, let last = rows.last else { break }
            slot = last.slot
            if Task.isCancelled { throw .refused("verifying was interrupted") }
            await Task.yield()
        }
        for (reason, count) in try await unreadableSessions() { result.unreadable[reason, default: 0] += count }
        // Tokens that came or went meanwhile may have been passed over or seen twice.
        if try await counts() == before {
            if result.tokens != total { result.wrongCount = total }
            if let damage = duplicates.damage { result.damages.append(damage) }
        }
        result.damagedCopy = DatabaseFileName.damagedCopy(of: store.path)
        result.isSound = result.unreadable.isEmpty && result.damages.isEmpty && result.wrongCount == nil
        return result
    }

    /// A number that changes whenever a token is added or removed, or the database is opened again.
    private struct Counts: Equatable {
        let tokens: Int
        let removed: Int
        let generation: UInt64
    }

    private func counts() async throws(StoreError) -> Counts {
        let state = store.state
        return try await store.writerThread.perform { (writer) throws(SQLiteError) in
            Counts(
                tokens: writer.tokenCount, removed: writer.removedTokens,
                generation: UInt64(state.generation.load(ordering: .acquiring)))
        }
    }

    /// How many sessions do not open, by what is wrong with them.
    private func unreadableSessions() async throws(StoreError) -> [String: Int] {
        let connection = try reader().connection
        var coder = RowCoder(store.state.sealing)
        var unreadable: [String: Int] = [:]
        var key: [UInt8]? = []
        while let start = key {
            let rows = try reading { () throws(SQLiteError) in
                let select = try SQLiteStatement(
                    "SELECT \(SessionRow.columns) FROM session WHERE key > ?1 ORDER BY key LIMIT ?2", on: connection)
                try select.bind(Int64(Self.verificationBatch), at: 2)
                return try select.withBinding(start, at: 1) { () throws(SQLiteError) in
                    var rows: [StoredSession] = []
                    while try select.step() { rows.append(StoredSession(select)) }
                    return rows
                }
            }
            for row in rows {
                do throws(SealingError) {
                    _ = try coder.open(row)
                } catch {
                    unreadable["\(error)", default: 0] += 1
                }
            }
            key = rows.count < Self.verificationBatch ? nil : rows.last?.key
            if Task.isCancelled { throw .refused("verifying was interrupted") }
            await Task.yield()
        }
        return unreadable
    }

    private func structuralDamages() async throws(StoreError) -> [String] {
        try await readingForLong { (connection) throws(SQLiteError) in try connection.structuralDamages() }
    }
}

/// Finds duplicate tokens, which are rows with the same key.
///
/// It must be shown all rows, in the order of their slots.
///
/// A command that reads all rows anyway finds them without another pass. For a join, SQLite would build an index of all
/// keys in a temporary file (sqlite.org/optoverview.html, "Automatic Query-Time Indexes"): a gigabyte for 25 million tokens.
struct DuplicateTokens {
    /// How many rows have the key of an earlier row.
    private(set) var count = 0
    /// The last rows, as far as a duplicate of them could still follow.
    private var near: [(slot: Int64, key: [UInt8])] = []

    /// - Parameter row: The next row.
    mutating func look(at row: (slot: Int64, key: [UInt8])) {
        near.removeAll { !RowSlots.contains(row.slot, from: $0.slot) }
        if near.contains(where: { $0.key == row.key }) { count += 1 }
        near.append(row)
    }

    /// The text for operators; nil if there are none.
    var damage: String? {
        count == 0 ? nil : "\(count) \(count == 1 ? "token is" : "tokens are") there twice"
    }
}

/// Reads that go over the whole database, one at a time, each with a connection of its own.
///
/// They have a queue of their own, so that the administration can answer other commands meanwhile.
actor LongReads {
    private let executor = BlockingExecutor(label: "long reads")

    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe executor.asUnownedSerialExecutor()
    }

    /// Reads a database; fails when the task is cancelled.
    func read<Value: Sendable>(
        _ path: String, _ body: @Sendable (SQLiteConnection) throws(SQLiteError) -> Value
    ) async -> Result<Value, SQLiteError> {
        let connection: SQLiteConnection
        do throws(SQLiteError) {
            connection = try SQLiteConnection(path: path, mode: .readOnly)
        } catch {
            return .failure(error)
        }
        return await connection.interruptible { () throws(SQLiteError) in try body(connection) }
    }

    /// Makes a backup of a fresh copy and checks it, as `BackupFile.finish` says.
    func finishBackup(_ path: String) async throws(StoreError) -> Int {
        try await BackupFile.finish(path)
    }
}
