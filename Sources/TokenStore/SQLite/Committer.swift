internal import Glibc

/// A row to insert or to replace.
struct Write: Sendable {
    let key: [UInt8]
    let value: [UInt8]
}

/// The writer's connection with its statements.
///
/// Used by one thread at a time.
final class Committer {
    private let connection: SQLiteConnection
    private let begin: SQLiteStatement
    private let end: SQLiteStatement
    private let upsert: SQLiteStatement

    init(_ connection: SQLiteConnection) throws(SQLiteError) {
        self.connection = connection
        begin = try SQLiteStatement("BEGIN IMMEDIATE", on: connection)
        end = try SQLiteStatement("COMMIT", on: connection)
        upsert = try SQLiteStatement(
            """
            INSERT INTO token (key, value, written_at) VALUES (?1, ?2, ?3)
            ON CONFLICT (key) DO UPDATE SET value = excluded.value, written_at = excluded.written_at
            """,
            on: connection
        )
    }

    /// Makes writes durable, all in one transaction and in their order.
    ///
    /// A write that fails by itself leaves the others alone; a fault of the disk or of the transaction fails them all.
    ///
    /// - Returns: An outcome for each write.
    func commit(_ writes: [Write]) -> [Result<Void, StoreError>] {
        do throws(SQLiteError) {
            let now = Int64(time(nil))
            try begin.run()
            var outcomes: [Result<Void, StoreError>] = []
            outcomes.reserveCapacity(writes.count)
            for write in writes { outcomes.append(try outcome(of: write, at: now)) }
            try end.run()
            return outcomes
        } catch {
            // SQLite has already rolled back after some errors; a second time does no harm.
            if connection.isInTransaction { try? connection.execute("ROLLBACK") }
            return writes.map { _ in .failure(.write(error)) }
        }
    }

    /// Moves the log into the database and empties it: a stopped store is one file and an empty log.
    func checkpoint() {
        // If it fails the log stays, and the next start reads it.
        try? connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    }

    private func outcome(of write: Write, at now: Int64) throws(SQLiteError) -> Result<Void, StoreError> {
        do throws(SQLiteError) {
            try upsert.bind(now, at: 3)
            try upsert.withBinding(write.key, at: 1) { () throws(SQLiteError) in
                try upsert.withBinding(write.value, at: 2) { () throws(SQLiteError) in
                    _ = try upsert.step()
                }
            }
            return .success(())
        } catch {
            guard error.isOfOneStatement, connection.isInTransaction else { throw error }
            return .failure(.write(error))
        }
    }
}
