internal import CSQLite

extension SQLiteConnection {
    /// Runs statements that may take long, and that fail when the task is cancelled.
    nonisolated(nonsending) func interruptible<Value>(
        _ body: () throws(SQLiteError) -> Value
    ) async -> Result<Value, SQLiteError> {
        // Statements ask by themselves, also those that begin later. An integrity check does so only at its end, and hears
        // of an interruption while it runs.
        unsafe sqlite3_progress_handler(handle, Self.stepsBetweenQuestions, { _ in Task.isCancelled ? 1 : 0 }, nil)
        defer { unsafe sqlite3_progress_handler(handle, 0, nil, nil) }
        let interruption = Interruption(of: self)
        return await withTaskCancellationHandler {
            do throws(SQLiteError) {
                return .success(try body())
            } catch {
                return .failure(error)
            }
        } onCancel: {
            interruption.happen()
        }
    }

    /// Of SQLite's virtual machine: some microseconds.
    private static let stepsBetweenQuestions: Int32 = 1_000

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
