import Foundation

/// A value that several threads use, one at a time.
///
/// `Mutex` of the standard library would need iOS 18. Unchecked, as the value is accessed only in `withLock`, which holds the
/// lock while it runs.
final class Locked<Value: Sendable>: @unchecked Sendable {
    private let lock = NSLock()
    private var value: Value

    init(_ value: Value) {
        self.value = value
    }

    /// Runs the body with the value.
    ///
    /// The body must not wait, and must not use this value again.
    func withLock<Result>(_ body: (inout Value) -> Result) -> Result {
        lock.lock()
        defer { lock.unlock() }
        return body(&value)
    }
}

/// A result that tasks wait for and another task provides: the first one counts, later ones are dropped.
final class Outcome<Value: Sendable>: Sendable {
    private struct State {
        var result: Result<Value, any Error>?
        var waiting: [Int: CheckedContinuation<Value, any Error>] = [:]
        var waits = 0
    }

    private let state = Locked(State())

    init() {}

    /// The outcome of an operation that begins now, and runs to its end even if nobody waits for it any more.
    convenience init(of operation: @escaping @Sendable () async throws -> Value) {
        self.init()
        Task { await bring(operation) }
    }

    var isFinished: Bool { state.withLock { $0.result != nil } }

    /// The number of waiting tasks.
    var waiters: Int { state.withLock { $0.waiting.count } }

    /// Waits for the outcome; a task that is cancelled gets a `CancellationError` at once, and the others wait on.
    func value() async throws -> Value {
        let number = state.withLock { state in
            state.waits += 1
            return state.waits
        }
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let result = state.withLock { state -> Result<Value, any Error>? in
                    if let result = state.result { return result }
                    // `onCancel` has run already, and found no continuation.
                    if Task.isCancelled { return .failure(CancellationError()) }
                    state.waiting[number] = continuation
                    return nil
                }
                if let result { continuation.resume(with: result) }
            }
        } onCancel: {
            state.withLock { $0.waiting.removeValue(forKey: number) }?.resume(throwing: CancellationError())
        }
    }

    /// Sets the outcome, unless there is one.
    func finish(_ result: Result<Value, any Error>) {
        let waiting = state.withLock { state -> [Int: CheckedContinuation<Value, any Error>] in
            guard state.result == nil else { return [:] }
            state.result = result
            defer { state.waiting = [:] }
            return state.waiting
        }
        for continuation in waiting.values { continuation.resume(with: result) }
    }

    /// Runs an operation, and sets the outcome to what it returns or throws.
    func bring(_ operation: @Sendable () async throws -> Value) async {
        do {
            finish(.success(try await operation()))
        } catch {
            finish(.failure(error))
        }
    }
}

/// Runs operations one after the other, in the order in which they were asked for.
final class Turns: Sendable {
    /// Waits for the last operation.
    private let last = Locked<@Sendable () async -> Void>({})

    /// Begins an operation, which runs after all earlier ones.
    func begin<Value: Sendable>(_ operation: @escaping @Sendable () async throws -> Value) -> Task<Value, any Error> {
        last.withLock { last in
            let task = Task { [last] in
                await last()
                return try await operation()
            }
            last = { _ = await task.result }
            return task
        }
    }

    /// Runs an operation after all earlier ones.
    ///
    /// It runs to its end even if the waiting task is cancelled.
    func run<Value: Sendable>(_ operation: @escaping @Sendable () async throws -> Value) async throws -> Value {
        let task = begin(operation)
        return try await Outcome { try await task.value }.value()
    }

    /// Waits until all operations that were started before this call have ended.
    func finish() async {
        try? await run {}
    }
}

/// Runs an operation for a limited time, after which it is cancelled; does not wait until it ends.
///
/// - Throws: What the operation throws; `TokenCacheError.timedOut` when the time is over.
func withTimeLimit<Value: Sendable>(
    _ limit: Duration, clock: any Clock<Duration>, operation: @escaping @Sendable () async throws -> Value
) async throws -> Value {
    let outcome = Outcome<Value>()
    let work = Task { await outcome.bring(operation) }
    let timer = Task {
        // Adding a longer one to the time ends the process.
        try await clock.sleep(for: min(limit, .seconds(1 << 40)))
        outcome.finish(.failure(TokenCacheError.timedOut))
    }
    defer {
        timer.cancel()
        work.cancel()
    }
    return try await outcome.value()
}
