#if PostgreSQL
/// Decides which operations are sent as one transaction.
enum OperationGroup {
    /// The most that is sent as one transaction, and that may wait for answers on one connection.
    private static let writesTogether = 128
    private static let bytesTogether = 4 << 20
    static let statementsUnderWay = 1_024
    /// Shared commits on one connection.
    ///
    /// While the server works on one, the writes of the next one gather: if it were sent before, it would have fewer writes, and
    /// hardly begin earlier.
    static let commitsUnderWay = 1

    /// Takes the operations of the next group, and puts them into the order in which they lock their rows.
    ///
    /// - Parameter left: What waits to be sent, at least one.
    static func next(from left: inout ArraySlice<Operation>) -> [Operation] {
        var (group, bytes) = ([Operation](), 0)
        while let next = left.first, group.count < writesTogether, bytes < bytesTogether {
            group.append(next)
            bytes += next.bytes
            left.removeFirst()
        }
        guard group.contains(where: \.isWrite) else {
            // Those that can share a statement come first, so that they are next to each other.
            return group.filter { $0.sharedStatement != nil } + group.filter { $0.sharedStatement == nil }
        }
        // Sorted stably: two writes of one token keep their order.
        return group.enumerated()
            .sorted { one, other in
                let (first, second) = (one.element.lockOrder, other.element.lockOrder)
                return first == second ? one.offset < other.offset : first.lexicographicallyPrecedes(second)
            }
            .map(\.element)
    }

    /// Operations of a group that are carried out together, or one of them.
    struct Part: Equatable {
        /// Nil if the operation sends its own statements.
        let shared: SharedStatement?
        /// Their places in the group.
        var operations: Range<Int>
    }

    /// Divides a group, whose order stays, into the parts that cost the least.
    static func parts(of group: [Operation]) -> [Part] {
        var parts: [Part] = []
        for (index, operation) in group.enumerated() {
            let shared = operation.sharedStatement
            if let shared, shared == parts.last?.shared,
                shared.takesKeysTwice || operation.lockOrder != group[index - 1].lockOrder
            {
                parts[parts.count - 1].operations = parts[parts.count - 1].operations.lowerBound..<index + 1
            } else {
                parts.append(Part(shared: shared, operations: index..<index + 1))
            }
        }
        return parts.flatMap { part in
            part.operations.count >= part.shared?.leastOperations ?? 1
                ? [part] : part.operations.map { Part(shared: nil, operations: $0..<$0 + 1) }
        }
    }
}
#endif
