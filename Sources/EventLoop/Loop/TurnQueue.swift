/// Handlers that wait for their turn, in order.
struct TurnQueue {
    private var handlers: [(any ReadinessHandler)?] = []
    /// The index of the first handler that still waits.
    private var first = 0

    var count: Int { handlers.count - first }
    var isEmpty: Bool { first == handlers.count }

    mutating func append(_ handler: any ReadinessHandler) {
        handlers.append(handler)
    }

    /// Removes and returns the handler that has waited longest.
    mutating func popFirst() -> (any ReadinessHandler)? {
        guard !isEmpty else { return nil }
        let handler = handlers[first].take()
        first += 1
        if isEmpty {
            handlers.removeAll(keepingCapacity: handlers.count <= 1_024)
            first = 0
        } else if first >= 1_024 && first >= handlers.count / 2 {
            // Amortized: each removal moves at most one handler.
            handlers.removeSubrange(..<first)
            first = 0
        }
        return handler
    }
}
