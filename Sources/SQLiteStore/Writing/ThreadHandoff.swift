/// A value that one thread makes and another one takes.
///
/// Unchecked: only the thread that takes the value touches it.
final class ThreadHandoff<Value>: @unchecked Sendable {
    private var value: Value?

    init(_ value: Value) {
        self.value = value
    }

    /// Returns the value; to be called once.
    func take() -> Value {
        guard let taken = value.take() else { preconditionFailure("a value is handed over once") }
        return taken
    }
}
