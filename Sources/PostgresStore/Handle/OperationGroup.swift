#if PostgreSQL
/// Decides which operations are sent as one transaction.
enum OperationGroup {
    /// The most that is sent as one transaction, and that may wait for answers on one connection.
    private static let writesTogether = 128
    private static let bytesTogether = 4 << 20
    static let statementsUnderWay = 1_024
    /// Shared commits on one connection: while the server works on one, the next one gathers or is on its way.
    static let commitsUnderWay = 2
    /// Commits of one write each.
    static let separateCommitsUnderWay = 64

    /// Takes the operations of the next group, and puts them into the order in which they lock their rows.
    ///
    /// - Parameters:
    ///   - left: What waits to be sent, at least one.
    ///   - sharesCommits: Whether a transaction may have several writes.
    static func next(from left: inout ArraySlice<Operation>, sharesCommits: Bool) -> [Operation] {
        guard sharesCommits || left.first?.isWrite != true else { return [left.removeFirst()] }
        var (group, bytes) = ([Operation](), 0)
        while let next = left.first, group.count < writesTogether, bytes < bytesTogether {
            if !sharesCommits, next.isWrite { break }
            group.append(next)
            bytes += next.bytes
            left.removeFirst()
        }
        guard group.contains(where: \.isWrite) else { return group }
        // Sorted stably: two writes of one token keep their order.
        return group.enumerated()
            .sorted { one, other in
                let (first, second) = (one.element.lockOrder, other.element.lockOrder)
                return first == second ? one.offset < other.offset : first.lexicographicallyPrecedes(second)
            }
            .map(\.element)
    }
}
#endif
