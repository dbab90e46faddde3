#if PostgreSQL
/// Decides which operations are sent as one transaction.
enum Grouping {
    /// How many operations one transaction has at most.
    private static let operationsTogether = 128
    /// A transaction takes no further operation once it has this many bytes.
    private static let bytesTogether = 4 << 20
    /// How many operations may wait for answers on one connection.
    static let operationsUnderWay = 1_024

    /// Takes the operations of the next group, in the order in which they are to lock their rows.
    ///
    /// - Parameter left: The operations that wait to be sent, at least one. One that needs a transaction of its own is a group alone.
    static func next(from left: inout ArraySlice<Operation>) -> [Operation] {
        var (group, bytes) = ([Operation](), 0)
        while let next = left.first, group.count < operationsTogether, bytes < bytesTogether {
            guard group.isEmpty || !next.isAlone else { break }
            group.append(next)
            bytes += next.bytes
            left.removeFirst()
            if next.isAlone { break }
        }
        guard group.contains(where: \.isWrite) else {
            // Operations that can share a statement come first, and so are neighbors.
            return group.filter { $0.sharedStatement != nil } + group.filter { $0.sharedStatement == nil }
        }
        // The sort is stable: two writes of one token keep their order.
        return group.enumerated()
            .sorted { one, other in
                guard one.element.isLast == other.element.isLast else { return other.element.isLast }
                let (first, second) = (one.element.lockOrder, other.element.lockOrder)
                return first == second ? one.offset < other.offset : first.lexicographicallyPrecedes(second)
            }
            .map(\.element)
    }

    /// Operations of a group that share a statement, or a statement of one operation.
    struct Part: Equatable {
        /// Nil if the operation sends its own statements.
        let shared: SharedStatement?
        /// Their indices in the group.
        var operations: Range<Int>
        /// The index of the statement, if the operation sends several.
        var statement = 0
    }

    /// Divides a group into parts that cost as little as possible; the order stays.
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

/// A statement that carries out several operations of a transaction, with a row of parameters for each.
///
/// Ten single statements cost libpq six times as much as one for ten rows, and the server one and a half times.
enum SharedStatement: Equatable {
    /// Reads tokens with values up to a length.
    case fetch(limit: Int)
    /// Stores tokens unless later versions are there; each key at most once.
    case store

    /// The least number of operations for which it is used.
    ///
    /// Fewer reads get a statement each, as setting up a search for several keys takes the server as long as two or three searches
    /// for one key. There is no other statement that only stores.
    var leastOperations: Int { self == .store ? 1 : 4 }

    /// The most bytes of a value that is read together with others, as libpq keeps the whole answer to a statement in memory.
    static let longestValue = 64 << 10

    /// Whether two of its operations may have the same key.
    var takesKeysTwice: Bool { self != .store }

    /// The values of the parameters: an array for each, with an element for each operation.
    struct Columns {
        var keys: [[UInt8]?] = []
        /// `Operation.mark`, which says to which operation a row of the answer belongs.
        var marks: [Int64?] = []
        var sessions: [[UInt8]?] = []
        var writtenAt: [Int64?] = []
        var expiresAt: [Int64?] = []
        var keyNumbers: [Int64?] = []
        var values: [[UInt8]?] = []
    }

    func send(
        _ operations: ArraySlice<Operation>, on connection: PostgresConnection
    ) throws(PostgresError) {
        var columns = Columns()
        for operation in operations { operation.append(to: &columns) }
        switch self {
        case .fetch(let limit):
            try connection.send(
                .fetchAll,
                [
                    .byteas(columns.keys), .bigints(columns.marks), .byteas(columns.sessions),
                    .bigint(Int64(clamping: limit)), .bigint(operations[operations.startIndex].rows.unixTime),
                ])
        case .store:
            try connection.send(
                .storeAll,
                [
                    .byteas(columns.keys), .bigints(columns.marks), .bigints(columns.writtenAt),
                    .bigints(columns.expiresAt), .bigints(columns.keyNumbers), .byteas(columns.values),
                ])
        }
    }

    /// Gives each operation its row of the answer.
    static func take(_ result: borrowing QueryResult, for operations: ArraySlice<Operation>) {
        var places: [Int64: Int] = [:]
        places.reserveCapacity(result.rowCount)
        // The mark is the last column.
        for row in 0..<result.rowCount { places[result.integer(row, result.columnCount - 1)] = row }
        for operation in operations { operation.take(result, row: places[operation.mark]) }
    }
}
#endif
