internal import Foundation

/// A value that several threads use, one at a time.
///
/// `Mutex` of the standard library would need iOS 18. The only unchecked type of this module: the value is reached only
/// through `withLock`, which holds the lock while it runs.
final class Locked<Value: Sendable>: @unchecked Sendable {
    private let lock = NSLock()
    private var value: Value

    init(_ value: Value) {
        self.value = value
    }

    /// Runs the body with the value.
    ///
    /// The body must not wait, and must not call what could use the same lock.
    func withLock<Result>(_ body: (inout Value) -> Result) -> Result {
        lock.lock()
        defer { lock.unlock() }
        return body(&value)
    }
}
