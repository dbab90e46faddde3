#if PostgreSQL
import Foundation
import Synchronization
import System

@testable import PostgresStore

/// A database for one test, with the tables of the present schema and nothing in them.
///
/// It is removed some time after this object, when it has no connection any longer.
///
/// Any thread.
final class TestDatabase: Sendable {
    let cluster: TestCluster
    let name: String
    private let isAlone: Bool

    private static let numbers = Atomic<Int>(0)
    /// The databases of tests that have ended.
    private static let left = Mutex<Set<String>>([])
    private static let template = Result { try makeTemplate() }

    /// - Parameter isEmpty: Whether it lacks even the tables.
    init(isEmpty: Bool = false) throws {
        cluster = try TestCluster.shared()
        try Self.dropLeftDatabases(on: cluster)
        name = "test_\(Self.numbers.add(1, ordering: .relaxed).newValue)"
        isAlone = false
        try Self.create(name, like: isEmpty ? "template0" : Self.template.get(), on: cluster)
    }

    /// The only database of a server of its own.
    ///
    /// - Parameter cluster: A server that nothing else uses. The space of an old row is not used again while a transaction is
    ///   open that began before, be it in another database.
    init(alone cluster: TestCluster) throws {
        self.cluster = cluster
        name = "postgres"
        isAlone = true
        _ = try Schema.makeTables(connection())
    }

    /// A copy with damaged pages.
    ///
    /// PostgreSQL still has the pages of this database in memory, but reads those of a database that is copied as files. No store may
    /// be open on this one.
    func copy(damaging tables: [(name: String, pages: [Int])]) throws -> TestDatabase {
        try sql("CHECKPOINT")
        for (table, pages) in tables {
            let path = try sql("SELECT pg_relation_filepath('\(table)')")[0][0] ?? ""
            let file = try FileHandle(forUpdating: URL(filePath: "\(cluster.folder)/data/\(path)"))
            for page in pages {
                try file.seek(toOffset: UInt64(page) * 8_192)
                try file.write(contentsOf: [UInt8](repeating: 0xff, count: 8_192))
            }
            try file.close()
        }
        let connection = try cluster.connection(to: "template1")
        try connection.run(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '\(name)' AND pid <> pg_backend_pid()"
        )
        try connection.run("CREATE DATABASE damaged TEMPLATE \(name) STRATEGY file_copy")
        return TestDatabase("damaged", on: cluster)
    }

    /// A database of a server that nothing else uses.
    private init(_ name: String, on cluster: TestCluster) {
        (self.cluster, self.name, isAlone) = (cluster, name, true)
    }

    /// Lets rows be sealed with some keys, for stores that do not write their keys into the database.
    func allow(keys numbers: Int...) throws {
        for number in numbers {
            try sql("INSERT INTO sealing_key VALUES (\(number), '') ON CONFLICT DO NOTHING")
        }
    }

    deinit {
        if !isAlone { Self.left.withLock { _ = $0.insert(name) } }
    }

    /// The settings of a store in it.
    func options(user: String = "postgres") -> PostgresOptions { cluster.options(for: name, user: user) }

    func connection(user: String = "postgres") throws -> BlockingConnection {
        try cluster.connection(to: name, user: user)
    }

    /// Runs statements in the database, one after the other on one connection.
    ///
    /// - Returns: The rows of the last one. Other values must be cast to text: `SELECT version::text FROM token`.
    @discardableResult
    func sql(_ statements: String...) throws -> [[String?]] {
        let connection = try connection()
        var rows: [[String?]] = []
        for statement in statements {
            let result = try connection.run(statement)
            rows = (0..<result.rowCount).map { row in
                (0..<result.columnCount).map { result.isNull(row, $0) ? nil : result.text(row, $0) }
            }
        }
        return rows
    }

    /// The first value of a statement's first row, which must be a number.
    func number(_ statement: String) throws -> Int64? { try connection().integer(statement) }

    /// How many statements that begin so wait for a lock.
    func waiting(_ beginning: String = "") throws -> Int64? {
        try number(
            """
            SELECT count(*) FROM pg_stat_activity WHERE query LIKE '\(beginning)%'
            AND wait_event_type = 'Lock' AND datname = current_database()
            """)
    }

    static var deadline: MonotonicTime { .now + Nanoseconds(.seconds(60)) }

    private static func run(_ statement: String, on cluster: TestCluster) throws {
        try cluster.connection(to: "postgres").run(statement)
    }

    private static func create(_ name: String, like template: String, on cluster: TestCluster) throws {
        try run("CREATE DATABASE \(name) TEMPLATE \(template)", on: cluster)
    }

    /// Drops the left databases without connections.
    ///
    /// A store that is being closed may still use one of the others.
    private static func dropLeftDatabases(on cluster: TestCluster) throws {
        let names = left.withLock(\.self)
        guard !names.isEmpty else { return }
        let connection = try cluster.connection(to: "postgres")
        let result = try connection.run("SELECT DISTINCT datname::text FROM pg_stat_activity")
        let used = Set((0..<result.rowCount).map { result.text($0, 0) })
        for name in names.subtracting(used) where left.withLock({ $0.remove(name) }) != nil {
            try connection.run("DROP DATABASE \(name) WITH (FORCE)")
        }
    }

    /// Makes the database from which those of the tests are copied.
    private static func makeTemplate() throws -> String {
        let (cluster, name) = (try TestCluster.shared(), "migrated")
        try create(name, like: "template0", on: cluster)
        let connection = try cluster.connection(to: name)
        _ = try Schema.makeTables(connection)
        return name
    }
}
#endif
