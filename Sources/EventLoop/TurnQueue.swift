/// Handlers that wait for their turn, first in, first out.
struct TurnQueue {
    private var handlers: [(any ReadinessHandler)?] = []
    /// Everything before this has left.
    private var first = 0

    var count: Int { handlers.count - first }
    var isEmpty: Bool { first == handlers.count }

    mutating func append(_ handler: any ReadinessHandler) {
        handlers.append(handler)
    }

    /// Takes out the one that has waited longest.
    mutating func popFirst() -> (any ReadinessHandler)? {
        guard !isEmpty else { return nil }
        let handler = handlers[first].take()
        first += 1
        if isEmpty {
            handlers.removeAll(keepingCapacity: handlers.count <= 1_024)
            first = 0
        } else if first >= 1_024 && first >= handlers.count / 2 {
            // Moves each at most once for each one that has left.
            handlers.removeSubrange(..<first)
            first = 0
        }
        return handler
    }
}
