import Cryptography
import Foundation
import StoreConformance
import Synchronization
import System
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct SQLiteConformanceTests {
    @Test(arguments: StoreConformance.behaviours)
    func `a store in SQLite does what every store does`(_ behaviour: StoreConformance.Behaviour) async throws {
        let folder = TemporaryDirectory()
        try await behaviour.check { change in try SQLiteTokenStore(at: folder.path, change) }
    }
}

@Suite struct SQLiteTokenStoreTests {
    private let folder = TemporaryDirectory()

    private func open(_ name: String = "data") throws -> SQLiteTokenStore {
        try SQLiteTokenStore(at: "\(folder.path)/\(name)")
    }

    /// Runs SQL on a closed store's file, as an operator with a tool could.
    private func edit(_ sql: String) throws {
        let connection = try SQLiteConnection(path: "\(folder.path)/data/tokens.db", mode: .readWriteCreate)
        try connection.execute("\(sql); PRAGMA wal_checkpoint(TRUNCATE)")
    }

    private func mode(_ path: String) throws -> Int {
        let attributes = try FileManager.default.attributesOfItem(atPath: "\(folder.path)/\(path)")
        return (attributes[.posixPermissions] as? Int) ?? 0
    }

    @Test("the WAL is not truncated after each step of an expiry")
    func expiry() async throws {
        let data = "\(folder.path)/data"
        let heads = Mutex<[[UInt8]?]>([])
        let store = try SQLiteTokenStore(at: data) {
            $0.report = { event in
                // Each truncation gives the WAL another head.
                guard case .expired = event else { return }
                heads.withLock { $0.append(TextFile.head(of: data + "/tokens.db-wal", count: 32)) }
            }
        }
        defer { store.close() }
        let tokens = (0..<2_560).map { (token: Token(id: Array("\($0)".utf8), info: [65]), writtenAt: Int64?(1)) }
        let outcomes = await SQLiteAdministrator(store).store(tokens)
        #expect(outcomes.allSatisfy { (try? $0.get()) != nil })
        store.change(Retention(afterWritten: .seconds(3_600)))
        _ = try await SQLiteAdministrator(store).walk { _ in }
        #expect(heads.withLock(\.count) >= 10)
        // On a slow machine, a second after the change passes meanwhile, which truncates it once.
        #expect(heads.withLock { Set($0).count } <= 2)
    }

    // MARK: - Opening

    @Test("only the owner may use the folder, its files, and the folders that are made above it")
    func permissions() async throws {
        let store = try open("new/deeper/data")
        let handle = try await WaitingHandle.open(store)
        try await handle.put("1", under: "a")
        #expect(try mode("new") == 0o700)
        #expect(try mode("new/deeper/data") == 0o700)
        for file in ["tokens.db", "tokens.db-wal", "lock"] {
            #expect(try mode("new/deeper/data/\(file)") == 0o600, "\(file)")
        }
        store.close()
    }

    @Test("a database of another version or program is not touched", arguments: [0, 1, 5, 99, nil])
    func others(_ version: Int?) throws {
        let path = "\(folder.path)/data/tokens.db"
        if let version {
            try open().close()
            try edit("PRAGMA user_version = \(version)")
        } else {
            try FileManager.default.createDirectory(atPath: "\(folder.path)/data", withIntermediateDirectories: true)
            try edit("CREATE TABLE theirs (x)")
        }
        let before = try Data(contentsOf: URL(filePath: path))
        let error = version.map { SQLiteOpenError.otherVersion(path: path, version: $0, supported: Schema.version) }
        #expect(throws: error ?? .foreign(path: path)) { try open() }
        #expect(try Data(contentsOf: URL(filePath: path)) == before)
    }

    @Test("a database whose page size another program has changed is refused by all", arguments: [false, true])
    func pageSize(_ hasTables: Bool) throws {
        let data = "\(folder.path)/data"
        let resizing = "PRAGMA journal_mode = DELETE; PRAGMA page_size = 4096; VACUUM; PRAGMA journal_mode = WAL"
        if hasTables {
            try open().close()
            try edit(resizing)
        } else {
            try FileManager.default.createDirectory(atPath: data, withIntermediateDirectories: true)
            try edit("PRAGMA page_size = 4096; PRAGMA journal_mode = WAL")
        }
        let path = "\(data)/tokens.db"
        let before = try Data(contentsOf: URL(filePath: path))
        let provider = SQLiteStoreProvider(examining: data)
        func check(_ body: () throws -> Void) throws {
            let error = try #require(#expect(throws: (any Error).self) { try body() })
            #expect("\(error)".contains("from 2048 to 4096 bytes"))
        }
        try check { _ = try open() }
        try check { _ = try provider.examine() }
        try check { _ = try provider.copySource(in: .lock(data)) }
        #expect(try Data(contentsOf: URL(filePath: path)) == before)
        if hasTables {
            // As a backup is.
            try edit("PRAGMA journal_mode = DELETE")
            try check { _ = try provider.verify(path) { _ in } }
        }
    }

    @Test("a store that no server has open is examined, and a missing one is recognized")
    func examination() async throws {
        let store = try open()
        await SQLiteAdministrator(store).fill(0..<3)
        store.close()
        let examiner = SQLiteStoreProvider(examining: "\(folder.path)/data")
        let found = try #require(try examiner.examine())
        let size = try FileManager.default.attributesOfItem(atPath: examiner.path)[.size] as? Int
        #expect(found.databaseBytes == size && found.walBytes == 0 && found.tokens == 3)
        let none = SQLiteStoreProvider(examining: "\(folder.path)/missing")
        #expect(try none.examine() == nil)
        #expect(none.isMissing && !examiner.isMissing)
    }
}

@Suite struct WriterConnectionTests {
    private let folder = TemporaryDirectory()
    private let connection: SQLiteConnection

    init() throws {
        connection = try SQLiteConnection(path: folder.path + "/db", mode: .readWriteCreate)
        try connection.execute("PRAGMA page_size = \(SQLiteConnection.pageSize)")
        try Schema.create(connection)
    }

    private func writer(byteLimit: Int? = nil) throws -> WriterConnection {
        try WriterConnection(
            connection, options: StoreOptions(in: folder.path) { $0.byteLimit = byteLimit },
            Sealing(.random(createdAt: 1)))
    }

    private func key(_ text: String) -> RowKey {
        RowKey(bytes: Array(text.utf8))
    }

    private func row(_ key: String, _ value: [UInt8] = [1]) -> Row {
        Row(self.key(key), value)
    }

    @Test("a write that fails by itself leaves the others of its group alone")
    func oneBadWrite() throws {
        try connection.execute("CREATE UNIQUE INDEX refuse ON token (value)")
        let writer = try writer()
        let outcomes = try writer.commit([row("a", [1]), row("bad", [1]), row("b", [2])])
        #expect(outcomes.map { (try? $0.get()) != nil } == [true, false, true])
        #expect(try connection.integer("SELECT count(*) FROM token") == 2)
        #expect(writer.tokenCount == 2)
    }

    @Test("when the transaction fails none of the group is stored")
    func failingGroup() throws {
        // As on a full disk: hardly a page more than there are now.
        try connection.execute("PRAGMA max_page_count = 8")
        let writer = try writer()
        let large = [UInt8](repeating: 7, count: 100_000)
        #expect(throws: SQLiteError.self) { try writer.commit([row("a"), row("b", large)]) }
        #expect(try connection.integer("SELECT count(*) FROM token") == 0)
        #expect(writer.tokenCount == 0)
        #expect(!connection.isInTransaction)
        try connection.execute("PRAGMA max_page_count = 1000")
        #expect(try writer.commit([row("b", large)]).allSatisfy { (try? $0.get()) != nil })
        #expect(writer.tokenCount == 1)
    }

    @Test("a newer token is kept where that is asked for, at the limit as well")
    func keepingNewer() throws {
        for (limit, start) in [(nil, 1_000), (1, 2_000)] as [(Int?, Int64)] {
            let writer = try writer(byteLimit: limit)
            var row = row("a", [1])
            (row.keepsNewer, row.times) = (true, RowTimes(writtenAt: start, expiresAt: nil))
            #expect(try writer.commit([row])[0].isSuccess)
            for time in [start - 1, start] {
                row.times = RowTimes(writtenAt: time, expiresAt: nil)
                guard case .failure(.newer) = try writer.commit([row])[0] else {
                    Issue.record("the token of \(time) was stored, with the limit \(limit ?? 0)")
                    return
                }
            }
            row.times = RowTimes(writtenAt: start + 1, expiresAt: nil)
            #expect(try writer.commit([row])[0].isSuccess)
        }
    }

    @Test("at the limit of bytes new ids are refused and known ones are not, until there is room")
    func byteLimit() throws {
        let writer = try writer(byteLimit: 1 << 20)
        let large = [UInt8](repeating: 7, count: 300_000)
        for key in ["a", "b", "c", "d"] { #expect(try writer.commit([row(key, large)])[0].isSuccess) }
        #expect(throws: StoreError.full(StoreLimit(bytes: 1 << 20))) { try writer.commit([row("e", large)])[0].get() }
        #expect(try writer.commit([row("a", [1])])[0].isSuccess)
        _ = try writer.remove([key("b")])
        #expect(try writer.commit([row("e", large)])[0].isSuccess)
    }
}

extension Result {
    fileprivate var isSuccess: Bool { (try? get()) != nil }
}
