#if PostgreSQL
internal import System
internal import TokenStore

/// Reads one token, for all who asked for it before the statement was sent.
final class FetchOperation: Operation {
    let key: [UInt8]
    let limit: Int
    private var completions: [Completion<Fetched>] = []
    private var found: Result<Fetched, StoreError>?
    /// Reads it again, for those who asked after this one was sent: they must not see what was there before they asked.
    var successor: FetchOperation?

    init(_ key: [UInt8], upTo limit: Int, bytes: Int, deadline: MonotonicTime, rows: RowAccess) {
        self.key = key
        self.limit = limit
        super.init(bytes: bytes, deadline: deadline, rows: rows)
    }

    override var isWrite: Bool { false }

    private(set) var requests = 0
    override var requestCount: Int { requests }

    override var isAwaited: Bool { completions.contains(where: \.isAwaited) }

    func join(_ completion: Completion<Fetched>) {
        completions.append(completion)
        requests += 1
    }

    override var sharedStatement: SharedStatement? {
        isAlone || limit > SharedStatement.longestValue ? nil : .fetch(limit: limit)
    }

    override func append(to columns: inout SharedStatement.Columns) {
        columns.keys.append(key)
        columns.marks.append(mark)
    }

    override func send(on connection: PostgresConnection) throws(PostgresError) {
        rows.parameters.removeAll()
        rows.parameters.append(key)
        rows.parameters.append(Int64(clamping: limit))
        try Statement.fetch.send(on: connection, rows)
    }

    override func take(_ result: borrowing QueryResult, of statement: Int) {
        take(result, row: result.rowCount > 0 ? 0 : nil)
    }

    override func take(_ result: borrowing QueryResult, row: Int?) {
        do throws(StoreError) {
            found = .success(try row.map { (row) throws(StoreError) in try rows.opened(result, row, key) } ?? .nothing)
        } catch {
            found = .failure(error)
        }
    }

    override func finish() -> Outcome {
        complete(found ?? .failure(.read(StoreFault("PostgreSQL has sent no row and no error"))))
        return .done
    }

    override func fail(_ error: StoreError) {
        complete(.failure(error))
    }

    private func complete(_ outcome: Result<Fetched, StoreError>) {
        let completions = self.completions
        self.completions = []
        for completion in completions { completion(outcome) }
    }
}
#endif
