#if PostgreSQL
import Glibc
import System
import TokenStore

extension BlockingConnection {
    /// Connects to the primary, for a copy of many hours.
    fileprivate static func toCopy(_ options: PostgresOptions) throws(StoreOpenError) -> BlockingConnection {
        try opening { () throws(PostgresError) in
            try PrimaryConnections(options).connect(until: .now + .seconds(30))
                .until(.now + .seconds(86_400))
        }
    }
}

private func opening<Value>(_ body: () throws(PostgresError) -> Value) throws(StoreOpenError) -> Value {
    try Result(catching: body).mapError { StoreOpenError.store(StoreFault($0)) }.get()
}

/// Reads all rows of a store on PostgreSQL as of one moment, while servers go on using it.
final class PostgresCopySource: CopySource {
    let count: CopyCount
    let moment: Int64?
    let versionLimit: Int64
    let clockLook: Int64?
    private(set) var unreadable: [String: Int] = [:]
    private let connection: BlockingConnection
    private let areClear: Bool
    private var coder: RowCoder
    /// Where the next rows begin; nil at the end.
    private var place: RowPlace?

    /// - Parameter keys: Opens the store for its keys.
    static func open(
        _ options: PostgresOptions, _ keys: () throws(StoreOpenError) -> Sealing
    ) throws(StoreOpenError) -> PostgresCopySource {
        let connection = try BlockingConnection.toCopy(options)
        let row = try opening { () throws(PostgresError) in try StoreRow.read(from: connection) }
        // If there are no tables, opening the store fails, and its error says what to do.
        let sealing = row?.isSealed == false ? nil : try keys()
        return try opening { () throws(PostgresError) in
            let (now, limit) = (Int64(time(nil)), VersionClock().next())
            // Opening the store may have taken so long that the proof made with the connection no longer counts; see Fence.
            if options.needsProof {
                try Fence.prove(connection, within: PrimaryConnections.proofTime)
            }
            // All statements see what the first one sees.
            try connection.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            return try PostgresCopySource(connection, sealing, at: now, versionLimit: limit.rawValue)
        }
    }

    /// - Parameter sealing: Nil if the rows are not encrypted.
    fileprivate init(
        _ connection: BlockingConnection, _ sealing: Sealing?, at moment: Int64? = nil, versionLimit: Int64 = 0
    ) throws(PostgresError) {
        (self.connection, self.moment, self.versionLimit) = (connection, moment, versionLimit)
        areClear = sealing == nil
        coder = RowCoder(sealing ?? Sealing(.random(createdAt: 0)))
        let sessions = try connection.integer("SELECT count(*) FROM session") ?? 0
        count = CopyCount(tokens: try connection.tokenCount(), sessions: Int(sessions))
        place = try connection.firstPlace()
        clockLook = try connection.integer("SELECT looked_at FROM store WHERE one = 1")
    }

    func next() throws(StoreError) -> [CopiedRow] {
        do {
            var rows: [CopiedRow] = []
            while rows.isEmpty, let start = place {
                let (stored, next) = try connection.rows(after: start, pages: Walk.Stride.long.rawValue)
                place = next
                for row in stored where !row.isRemoved {
                    do {
                        rows.append(areClear ? try row.clear() : try row.opened(&coder))
                    } catch {
                        unreadable["\(error)", default: 0] += 1
                    }
                }
            }
            return rows
        } catch {
            throw .read(StoreFault(error))
        }
    }
}

/// Fills an empty store on PostgreSQL, or continues to fill it after an interruption.
///
/// Each call of `add` commits its rows. Until `finish`, no server begins to use a connection, and none opens the store; see
/// `Schema.versionWhileFilled`.
final class PostgresCopyTarget: CopyTarget {
    private let connection: BlockingConnection
    private let sealing: Sealing
    private var coder: RowCoder

    /// - Parameters:
    ///   - options: Where the database is.
    ///   - keys: Opens the store for its keys.
    init(
        _ options: PostgresOptions, _ keys: () throws(StoreOpenError) -> Sealing
    ) throws(StoreOpenError) {
        let connection = try BlockingConnection.toCopy(options)
        let refusal = try opening { () throws(PostgresError) in try Self.refusal(connection) }
        if let refusal { throw .store(StoreFault(refusal)) }
        self.connection = connection
        sealing = try keys()
        coder = RowCoder(sealing)
        try opening { () throws(PostgresError) in
            try connection.run("UPDATE store SET schema_version = \(Schema.versionWhileFilled) WHERE one = 1")
        }
    }

    /// Keeps servers away.
    ///
    /// - Returns: Why the store cannot be filled; nil if it can.
    private static func refusal(_ connection: BlockingConnection) throws(PostgresError) -> String? {
        // If there are no tables, opening the store fails, and its error says what to do.
        guard try StoreRow.read(from: connection) != nil else { return nil }
        guard try connection.integer("SELECT pg_try_advisory_lock\(Schema.useLock)") == 1 else {
            return """
                a server or another token-cache copy is using the store; stop it before rows are copied into the store
                """
        }
        // Another copy may have ended just before.
        let row = try StoreRow.read(from: connection)
        guard row?.isBeingFilled != true, try connection.integer("SELECT \(isEmpty)") == 0 else { return nil }
        return """
            the store holds tokens or sessions, or rows of removed tokens, which are kept for an hour, and rows are copied into an \
            empty store only. If token-cache copy has just filled it, the copy is complete; otherwise make new tables in another \
            database or schema, with token-cache migrate
            """
    }

    private static let isEmpty = "NOT EXISTS (SELECT FROM token) AND NOT EXISTS (SELECT FROM session)"

    func add(_ rows: [CopiedRow]) throws(StoreError) {
        let (tokens, sessions) = try coder.rows(of: rows)
        try writing { () throws(PostgresError) in
            try connection.transaction { () throws(PostgresError) in
                // Waiting for the disk is left to the commit of `finish`, which is durable only if all earlier ones are.
                try connection.run("SET LOCAL synchronous_commit = off")
                if !tokens.isEmpty { try connection.add(tokens) }
                if !sessions.isEmpty { try connection.add(sessions) }
            }
        }
    }

    func reread() throws(StoreError) -> any CopySource {
        try writing { () throws(PostgresError) in try PostgresCopySource(connection, sealing) }
    }

    /// The limit of versions is not kept: versions are times here, and a server gives later ones than those it has read.
    func finish(versionLimit: Int64, clockLook: Int64?) throws(StoreError) {
        try writing { () throws(PostgresError) in
            try connection.transaction { () throws(PostgresError) in
                try connection.run(
                    "UPDATE store SET looked_at = $1::bigint, schema_version = \(Schema.version) WHERE one = 1",
                    [.bigint(clockLook)])
            }
        }
    }

    func abandon() {
        _ = try? connection.run(
            "UPDATE store SET schema_version = \(Schema.version) WHERE one = 1 AND \(Self.isEmpty)")
    }

    private func writing<Value>(_ body: () throws(PostgresError) -> Value) throws(StoreError) -> Value {
        try Result(catching: body).mapError { StoreError.write(StoreFault($0)) }.get()
    }
}
#endif
