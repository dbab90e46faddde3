import GRDB

/// Tokens in SQLite: in WAL mode, and a token that is stored is on the disk.
struct TokenStore: Sendable {
    private let database: DatabasePool

    /// Opens the database, which is made if there is none.
    init(path: String) throws {
        database = try DatabasePool(path: path)
        // GRDB sets NORMAL when it has opened a pool, so this cannot be part of a pool's configuration.
        try database.writeWithoutTransaction { database in
            try database.execute(sql: "PRAGMA synchronous = FULL")
        }
        var migrator = DatabaseMigrator()
        migrator.registerMigration("tokens") { database in
            try database.create(table: "token", options: .withoutRowID) { table in
                table.primaryKey("id", .text)
                table.column("info", .text).notNull()
            }
        }
        try migrator.migrate(database)
    }

    /// What is stored under an id.
    func tokenInfo(of uniqueID: String) async throws -> String? {
        try await database.read { database in
            let statement = try database.cachedStatement(sql: "SELECT info FROM token WHERE id = ?")
            return try String.fetchOne(statement, arguments: [uniqueID])
        }
    }

    /// Stores a token info, in place of what was there.
    func store(_ tokenInfo: String, for uniqueID: String) async throws {
        try await database.write { database in
            let statement = try database.cachedStatement(
                sql: "INSERT INTO token VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET info = excluded.info"
            )
            try statement.execute(arguments: [uniqueID, tokenInfo])
        }
    }
}
