import Foundation
import TestSupport

@testable import SQLiteStore
@testable import TokenStore

/// Suites with a store that an earlier version has left.
protocol EarlierVersionSuite {
    var folder: TemporaryDirectory { get }
    var events: Events { get }
}

extension EarlierVersionSuite {
    var data: String { folder.path + "/data" }

    var path: String { data + "/tokens.db" }

    /// The tables of the earlier versions.
    private static var tables: [Int: String] {
        [
            1: """
            CREATE TABLE token (
                key BLOB NOT NULL PRIMARY KEY,
                value BLOB NOT NULL,
                written_at INTEGER NOT NULL
            ) STRICT
            """,
            2: """
            CREATE TABLE token (
                key BLOB NOT NULL PRIMARY KEY,
                written_at INTEGER NOT NULL,
                expires_at INTEGER,
                key_number INTEGER NOT NULL,
                value BLOB NOT NULL
            ) STRICT;
            CREATE TABLE store (
                one INTEGER PRIMARY KEY CHECK (one = 1),
                key_ring BLOB,
                tokens INTEGER NOT NULL
            ) STRICT;
            INSERT INTO store (one, key_ring, tokens) VALUES (1, NULL, 0)
            """,
        ]
    }

    /// A database as an earlier version has left it, with a WAL.
    func database(version: Int, _ rows: String) throws {
        let connection = try SQLiteConnection(path: path, mode: .readWriteCreate)
        _ = try connection.text("PRAGMA journal_mode = WAL")
        try connection.execute(
            """
            \(Self.tables[version] ?? "");
            PRAGMA application_id = \(Schema.applicationID);
            PRAGMA user_version = \(version);
            \(rows)
            """
        )
    }

    /// A database of version 2 with the tokens of one of this version.
    func secondVersion(_ count: Int, isSealed: Bool) async throws {
        let store = try SQLiteTokenStore(at: data) { $0.isSealed = isSealed }
        let tokens = (0..<count).map { (Token(id: Array("id\($0)".utf8), info: Array("info\($0)".utf8)), Int64($0)) }
        for case .failure(let error) in await SQLiteAdministrator(store).store(tokens.map { ($0.0, $0.1) }) {
            throw error
        }
        store.close()
        if isSealed { try EarlierForm.setBack(data) }
        try FileManager.default.moveItem(atPath: path, toPath: path + ".3")
        try database(
            version: 2,
            """
            CREATE INDEX token_by_writing ON token (written_at);
            ATTACH '\(path).3' AS new;
            INSERT INTO token (key, written_at, expires_at, key_number, value)
            SELECT key, written_at, written_at + 9, key_number, value FROM new.token ORDER BY written_at;
            UPDATE store SET tokens = new.tokens, key_ring = new.key_ring FROM new.store AS new;
            """
        )
        try FileManager.default.removeItem(atPath: path + ".3")
    }

    /// Makes a store that nobody has open one of version 3.
    func setBackToThirdVersion() throws {
        try EarlierForm.setBack(data)
        try SQLiteConnection(path: path, mode: .readWrite).execute(
            "\(Self.changesToVersion4); ALTER TABLE store DROP COLUMN looked_at; DROP TABLE seal; PRAGMA user_version = 3"
        )
    }

    /// What makes a store of this version one of version 4.
    private static var changesToVersion4: String {
        """
        ALTER TABLE token DROP COLUMN version; ALTER TABLE store DROP COLUMN version_limit;
        ALTER TABLE store DROP COLUMN sessions; DROP TABLE session; PRAGMA user_version = 4
        """
    }

    /// Makes a store that nobody has open one of version 4.
    func setBackToFourthVersion() throws {
        try SQLiteConnection(path: path, mode: .readWrite).execute(Self.changesToVersion4)
    }

    /// Does something with a store in the clear that nobody has open.
    func replacing(
        _ body: (OfflineSQLiteStore) throws(StoreError) -> StoreReplacement
    ) throws -> StoreReplacement {
        var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: data))
        options.isSealed = false
        return try body(try OfflineSQLiteStore(directory: data, options: options) { _ in })
    }
}
