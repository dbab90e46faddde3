/// What one task waits for and others bring: the first outcome counts, whatever comes after it is dropped.
final class Outcome<Value: Sendable>: Sendable {
    private enum State: Sendable {
        case open
        case awaited(CheckedContinuation<Value, any Error>)
        case finished(Result<Value, any Error>)
    }

    private let state = Locked(State.open)

    /// Waits for the outcome, which is a `CancellationError` if the waiting task is cancelled before.
    ///
    /// At most one task may wait.
    func value(whileWaiting begin: () -> Void = {}) async throws -> Value {
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let finished = state.withLock { state -> Result<Value, any Error>? in
                    switch state {
                    case .finished(let result): return result
                    case .awaited: preconditionFailure("two tasks wait for one outcome")
                    case .open: state = .awaited(continuation)
                    }
                    return nil
                }
                if let finished { continuation.resume(with: finished) }
                begin()
            }
        } onCancel: {
            finish(.failure(CancellationError()))
        }
    }

    /// Brings the outcome; false if there was one.
    @discardableResult
    func finish(_ result: Result<Value, any Error>) -> Bool {
        let (isFirst, continuation) = state.withLock { state -> (Bool, CheckedContinuation<Value, any Error>?) in
            defer { if case .finished = state {} else { state = .finished(result) } }
            switch state {
            case .open: return (true, nil)
            case .awaited(let continuation): return (true, continuation)
            case .finished: return (false, nil)
            }
        }
        continuation?.resume(with: result)
        return isFirst
    }
}

/// Does something for a limited time.
///
/// It does not wait for the end of an operation that is late: that is cancelled, and may end when it likes.
///
/// - Throws: What the operation throws; `TokenCacheError.timedOut` when the time is over.
func withTimeLimit<Value: Sendable>(
    _ limit: Duration, clock: any Clock<Duration>, operation: @escaping @Sendable () async throws -> Value
) async throws -> Value {
    let outcome = Outcome<Value>()
    let work = Task {
        do {
            outcome.finish(.success(try await operation()))
        } catch {
            outcome.finish(.failure(error))
        }
    }
    let timer = Task {
        try await clock.sleep(for: limit)
        outcome.finish(.failure(TokenCacheError.timedOut))
    }
    defer {
        timer.cancel()
        work.cancel()
    }
    return try await outcome.value()
}

extension Clock where Duration == Swift.Duration {
    /// A function that tells the time since it was made.
    func stopwatch() -> @Sendable () -> Swift.Duration {
        let start = now
        return { start.duration(to: now) }
    }
}
