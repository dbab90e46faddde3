/// Runs operations one after the other, in the order in which they were asked for.
final class Turns: Sendable {
    private let last = Locked<Task<Void, Never>?>(nil)

    /// Runs an operation after all earlier ones.
    ///
    /// It runs to its end even if the waiting task is cancelled.
    func run<Value: Sendable>(_ operation: @escaping @Sendable () async throws -> Value) async throws -> Value {
        let task = last.withLock { last in
            let previous = last
            let task = Task {
                await previous?.value
                return try await operation()
            }
            last = Task { _ = await task.result }
            return task
        }
        return try await task.value
    }

    /// Waits for the end of all operations that were asked for.
    func finish() async {
        await last.withLock { $0 }?.value
    }
}
