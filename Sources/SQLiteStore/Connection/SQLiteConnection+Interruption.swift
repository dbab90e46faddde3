internal import CSQLite

extension SQLiteConnection {
    /// Runs statements that may take long; they fail when the task is cancelled.
    ///
    /// - Parameters:
    ///   - isolation: The caller's actor, whose thread is the connection's.
    ///   - body: What runs them, on that thread.
    func interruptible<Value>(
        isolation: isolated (any Actor)? = #isolation, _ body: () throws(SQLiteError) -> Value
    ) async -> Result<Value, SQLiteError> {
        // Statements poll for cancellation, also those that begin later. An integrity check polls only at its end, but
        // can be interrupted while it runs.
        unsafe sqlite3_progress_handler(handle, Self.stepsBetweenQuestions, { _ in Task.isCancelled ? 1 : 0 }, nil)
        defer { unsafe sqlite3_progress_handler(handle, 0, nil, nil) }
        let interruption = Interruption(of: self)
        return await withTaskCancellationHandler {
            // This closure runs on the caller's actor only because it captures that actor (Swift Evolution proposal 0420).
            // Without this line it would run on Swift's shared pool, and the actor could use the connection at the same time.
            _ = isolation
            do throws(SQLiteError) {
                return .success(try body())
            } catch {
                return .failure(error)
            }
        } onCancel: {
            interruption.happen()
        }
    }

    /// Steps of SQLite's virtual machine between two polls: some microseconds.
    private static let stepsBetweenQuestions: Int32 = 1_000

    /// Any thread, as long as the connection is open (sqlite.org/c3ref/interrupt.html).
    @safe private struct Interruption: @unchecked Sendable {
        // Unchecked: SQLite allows interrupting from another thread.
        private let handle: OpaquePointer

        init(of connection: SQLiteConnection) {
            unsafe handle = unsafe connection.handle
        }

        func happen() {
            unsafe sqlite3_interrupt(handle)
        }
    }
}
