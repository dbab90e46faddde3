internal import TokenStore

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
