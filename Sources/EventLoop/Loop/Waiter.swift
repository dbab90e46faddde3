/// A suspended task, which is resumed exactly once.
///
/// Makes `UnsafeContinuation` safe: the loop's tables own each waiter and remove it before they resume it. That is the check
/// for which `CheckedContinuation` would allocate memory at each wait.
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
