import Dispatch
import Synchronization

/// Waits on the calling thread for work that is asynchronous, as a target's check is not.
func wait<Value: Sendable>(for work: @escaping @Sendable () async throws -> Value) throws -> Value {
    let outcome = Outcome<Value>()
    let isDone = DispatchSemaphore(value: 0)
    Task.detached {
        do {
            let value = try await work()
            outcome.result.withLock { $0 = .success(value) }
        } catch {
            outcome.result.withLock { $0 = .failure(error) }
        }
        isDone.signal()
    }
    isDone.wait()
    guard let result = outcome.result.withLock(\.self) else { preconditionFailure("the work has an outcome") }
    return try result.get()
}

private final class Outcome<Value: Sendable>: Sendable {
    let result = Mutex<Result<Value, any Error>?>(nil)
}
