#if PostgreSQL
import Cryptography
import StoreConformance
import TestSupport
import Testing

@testable import PostgresStore
@testable import TokenStore

@Suite struct CopyTests {
    private let source: TestServer
    private let target: TestDatabase
    private let folder = TemporaryDirectory()

    init() throws {
        source = try TestServer(TestDatabase())
        target = try TestDatabase()
    }

    private func reader() throws -> any CopySource {
        try TestServer.provider(source.database, source.folder)
            .copySource(in: DataDirectory(withoutLock: source.folder.path))
    }

    private func filler() throws -> any CopyTarget {
        try TestServer.provider(target, folder)
            .copyTarget(in: DataDirectory(withoutLock: folder.path))
    }

    private func fill() async throws -> WaitingHandle {
        let tokens = (0..<2_500).map {
            (Token(id: Array("id\($0)".utf8), info: Array("info\($0)".utf8)), Int64?(1_000))
        }
        for outcome in await source.store.administrator.handle.store(tokens, keepsNewer: false) { try outcome.get() }
        _ = try await source.store.administrator.handle.remove([Array("id2499".utf8)])[0].get()
        let handle = try await WaitingHandle.open(source.store)
        for number in 1...3 { try await handle.begin("secret \(number)", of: "anna") }
        return handle
    }

    @Test func `a copy has the rows of one moment, sealed with another ring`() async throws {
        let handle = try await fill()
        let version = try await handle.put("of anna", under: "anna", if: .any)
        let sessions = try await handle.list("anna")
        let from = try reader()
        try await source.put("later", under: "later")
        let summary = try StoreCopy(from: from, to: try filler()) { _, _ in }.run(skipsUnreadable: false)
        #expect(summary.copied == CopyCount(tokens: 2_500, sessions: 3) && summary.isComplete && summary.moment != nil)
        let copy = try TestServer(target, folder: folder)
        defer { copy.store.close() }
        #expect(try await copy.get("id7") == "info7")
        #expect(try await copy.get("id2499") == nil)
        #expect(try await copy.get("later") == nil)
        let page = try await copy.store.administrator.page(after: nil, limit: 1_000)
        #expect(page.entries.count { $0.times.writtenAt == 1_000 } >= 999)
        let copied = try await WaitingHandle.open(copy.store)
        #expect(try await copied.list("anna") == sessions)
        #expect(try await copied.find("secret 2") == sessions[1])
        #expect(try await copied.version(of: "anna") == version)
        #expect(try await copied.put("again", under: "anna", if: .any) > version)
        #expect(try await copy.store.administrator.verify { _ in }.isSound)
        source.store.close()
    }

    @Test func `a store in the clear, of version 1.0, is not opened, and its rows can be sealed`() async throws {
        source.store.close()
        let clear = try TestDatabase()
        var coder = RowCoder(Sealing(.random(createdAt: 1)))
        let key = coder.sessionKey(of: Array("secret".utf8).span)
        // As a server of version 1.0 does with `sealing.enabled: off`.
        try clear.sql(
            "UPDATE store SET is_sealed = false",
            "INSERT INTO token VALUES ('anna', 2, 1000, 4000000000, 0, 'of anna'), ('gone', 3, 1000, NULL, -1, NULL)",
            """
            INSERT INTO session VALUES (
                '\\x\(Hexadecimal.text(key.bytes))', '0123456789abcdef', 'anna', 1, 1000, 4000000000, 1000, 0, 'anna')
            """)
        let provider = TestServer.provider(clear, folder)
        let directory = DataDirectory(withoutLock: folder.path)
        let refusal = StoreOpenError.notSealed(place: "the database")
        #expect(throws: refusal) { try provider.open() }
        #expect(provider.inspect().findings.contains { $0.state == .problem && "\(refusal)".hasPrefix($0.text) })
        let summary = try StoreCopy(from: try provider.copySource(in: directory), to: try filler()) { _, _ in }.run(
            skipsUnreadable: false)
        #expect(summary.copied == CopyCount(tokens: 1, sessions: 1) && summary.isComplete)
        let sealed = try TestServer(target, folder: folder)
        defer { sealed.store.close() }
        #expect(try await sealed.get("anna") == "of anna")
        let handle = try await WaitingHandle.open(sealed.store)
        #expect(try await handle.find("secret")?.user == Array("anna".utf8))
        #expect(try await handle.version(of: "anna") == TokenVersion(rawValue: 2))
        #expect(try target.number("SELECT count(*) FROM token WHERE key_number = 1 AND written_at = 1000") == 1)
    }

    @Test func `a copy that fails leaves an empty store`() async throws {
        _ = try await fill()
        try source.database.sql(
            "UPDATE token SET value = 'x' WHERE ctid = (SELECT max(ctid) FROM token WHERE value IS NOT NULL)")
        let copy = StoreCopy(from: try reader(), to: try filler()) { _, _ in }
        #expect(throws: StoreError.self) { try copy.run(skipsUnreadable: false) }
        let opened = try TestServer(target, folder: folder)
        #expect(try await opened.store.administrator.statistics().tokens == 0)
        for store in [source.store, opened.store] { store.close() }
    }

    @Test(arguments: [
        ("INSERT INTO token VALUES ('\\x01', 1, 1, NULL, -1, NULL)", "the store holds tokens or sessions"),
        ("SELECT pg_advisory_lock_shared\(Schema.useLock)::text", "a server or another token-cache copy"),
        ("UPDATE store SET schema_version = 77", "the database has schema 77"),
    ])
    func `a target that is used is refused, and stays as it is`(_ statement: String, _ reason: String) async throws {
        let connection = try target.connection()
        try connection.run(statement)
        let error = #expect(throws: StoreOpenError.self) { try filler() }
        #expect("\(String(describing: error))".contains(reason))
        source.store.close()
    }
}
#endif
