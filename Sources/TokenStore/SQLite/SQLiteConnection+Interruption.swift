internal import CSQLite

extension SQLiteConnection {
    /// Runs statements that may take long, of which the one that is running fails when the task is cancelled.
    nonisolated(nonsending) func interruptible<Value>(
        _ body: () throws(SQLiteError) -> Value
    ) async -> Result<Value, SQLiteError> {
        let interruption = Interruption(of: self)
        return await withTaskCancellationHandler {
            // Before its first statement nothing can be interrupted.
            guard !Task.isCancelled else {
                return .failure(SQLiteError(code: SQLITE_INTERRUPT, message: "interrupted", sql: ""))
            }
            do throws(SQLiteError) {
                return .success(try body())
            } catch {
                return .failure(error)
            }
        } onCancel: {
            interruption.happen()
        }
    }

    /// Any thread, as long as the connection is open (sqlite.org/c3ref/interrupt.html).
    @safe private struct Interruption: @unchecked Sendable {
        // Unchecked: SQLite sees to it that another thread may interrupt.
        private let handle: OpaquePointer

        init(of connection: SQLiteConnection) {
            unsafe handle = unsafe connection.handle
        }

        func happen() {
            unsafe sqlite3_interrupt(handle)
        }
    }
}
