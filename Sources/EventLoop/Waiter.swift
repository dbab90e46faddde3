/// A suspended task that somebody resumes exactly once.
///
/// The fence around `UnsafeContinuation`: the loop's tables own each waiter and take it out before resuming it, which is
/// the check that `CheckedContinuation` would repeat for an allocation a wait.
@safe struct Waiter<Value: Sendable> {
    private let continuation: UnsafeContinuation<Value, Never>

    /// Suspends the calling task and hands its waiter to `body`, which keeps it.
    static func suspend(_ body: (Waiter) -> Void) async -> Value {
        unsafe await withUnsafeContinuation { continuation in
            body(unsafe Waiter(continuation: continuation))
        }
    }

    func resume(returning value: Value) {
        unsafe continuation.resume(returning: value)
    }
}
