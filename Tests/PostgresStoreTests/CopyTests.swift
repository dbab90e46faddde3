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

    /// Copies into the target, with a connection that is closed afterwards.
    private func copy(_ source: any CopySource, skipsUnreadable: Bool = false) throws -> CopySummary {
        try StoreCopy(from: source, to: try filler()) { _, _ in }.run(skipsUnreadable: skipsUnreadable)
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
        let summary = try copy(from)
        #expect(summary.copied == CopyCount(tokens: 2_500, sessions: 3) && summary.isComplete && summary.moment != nil)
        let server = try TestServer(target, folder: folder)
        defer { server.store.close() }
        #expect(try await server.get("id7") == "info7")
        #expect(try await server.get("id2499") == nil)
        #expect(try await server.get("later") == nil)
        let page = try await server.store.administrator.page(after: nil, limit: 1_000)
        #expect(page.entries.count { $0.times.writtenAt == 1_000 } >= 999)
        let copied = try await WaitingHandle.open(server.store)
        #expect(try await copied.list("anna") == sessions)
        #expect(try await copied.find("secret 2") == sessions[1])
        #expect(try await copied.version(of: "anna") == version)
        #expect(try await copied.put("again", under: "anna", if: .any) > version)
        #expect(try await server.store.administrator.verify { _ in }.isSound)
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
        let summary = try copy(try provider.copySource(in: directory))
        #expect(summary.copied == CopyCount(tokens: 1, sessions: 1) && summary.isComplete)
        let sealed = try TestServer(target, folder: folder)
        defer { sealed.store.close() }
        #expect(try await sealed.get("anna") == "of anna")
        let handle = try await WaitingHandle.open(sealed.store)
        #expect(try await handle.find("secret")?.user == Array("anna".utf8))
        #expect(try await handle.version(of: "anna") == TokenVersion(rawValue: 2))
        #expect(try target.number("SELECT count(*) FROM token WHERE key_number = 1 AND written_at = 1000") == 1)
    }

    @Test func `a copy that fails is not served, and leaves an empty store as it was`() async throws {
        let handle = try await fill()
        try source.database.sql(
            "UPDATE token SET value = 'x' WHERE ctid = (SELECT max(ctid) FROM token WHERE value IS NOT NULL)")
        #expect(throws: StoreError.self) { try copy(InterruptedSource(try reader(), after: 0)) }
        try TestServer(target, folder: folder).store.close()
        #expect(throws: StoreError.self) { try copy(try reader()) }
        #expect(throws: StoreOpenError.self) { try TestServer(target, folder: folder) }
        let summary = try copy(try reader(), skipsUnreadable: true)
        #expect(summary.copied == CopyCount(tokens: 2_498, sessions: 3) && !summary.isComplete)
        let opened = try TestServer(target, folder: folder)
        #expect(try await opened.store.administrator.statistics().tokens == 2_498)
        for store in [source.store, opened.store] { store.close() }
        withExtendedLifetime(handle) {}
    }

    @Test func `a copy that was interrupted continues, and is not served before it is complete`() async throws {
        let handle = try await fill()
        let sessions = try await handle.list("anna")
        #expect(throws: StoreError.self) { try copy(InterruptedSource(try reader(), after: 2)) }
        let provider = TestServer.provider(target, folder)
        let refusal = "token-cache copy has not filled the store completely"
        let error = #expect(throws: StoreOpenError.self) { try provider.open() }
        #expect("\(String(describing: error))".contains(refusal))
        #expect(provider.inspect().findings.contains { $0.state == .problem && $0.text.contains(refusal) })
        #expect(throws: (any Error).self) { try provider.migrate() }
        let added = try target.number("SELECT count(*) FROM token")
        let last = try #require(try target.number("SELECT max(xmin::text::bigint) FROM token"))
        #expect(added == 2_000)

        let summary = try copy(try reader())
        #expect(summary.copied == CopyCount(tokens: 2_499, sessions: 3) && summary.isComplete)
        #expect(try target.number("SELECT count(*) FROM token WHERE xmin::text::bigint <= \(last)") == added)
        let server = try TestServer(target, folder: folder)
        #expect(try await server.get("id7") == "info7")
        #expect(try await server.get("id2498") == "info2498")
        #expect(try await WaitingHandle.open(server.store).list("anna") == sessions)
        for store in [source.store, server.store] { store.close() }
    }

    @Test func `a server that runs makes no connection to a store that a copy has not filled`() async throws {
        let server = try TestServer(target, folder: folder)
        try await server.put("info", under: "anna")
        try target.sql(
            "UPDATE store SET schema_version = \(Schema.versionWhileFilled)",
            """
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()
            """)
        let waiting = Task { try await server.get("anna") }
        try await eventually { server.store.fault?.description.contains("token-cache copy fills the store") == true }
        try target.sql("UPDATE store SET schema_version = \(Schema.version)")
        #expect(try await waiting.value == "info")
        for store in [source.store, server.store] { store.close() }
    }

    @Test func `a copy that continues one of another state of the source is refused`() async throws {
        let handle = try await fill()
        #expect(throws: StoreError.self) { try copy(InterruptedSource(try reader(), after: 2)) }
        for number in 0..<100 {
            _ = try await source.store.administrator.handle.remove([Array("id\(number)".utf8)])[0].get()
        }
        let error = #expect(throws: StoreError.self) { try copy(try reader()) }
        #expect("\(String(describing: error))".contains("the source was changed"))
        #expect(throws: StoreOpenError.self) { try TestServer(target, folder: folder) }
        source.store.close()
        withExtendedLifetime(handle) {}
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

/// Gives the rows of another source in batches of a thousand, and fails after some of them.
private final class InterruptedSource: CopySource {
    private let source: any CopySource
    private var batches: Int
    private var rows: [CopiedRow] = []

    init(_ source: any CopySource, after batches: Int) {
        (self.source, self.batches) = (source, batches)
    }

    var count: CopyCount { source.count }
    var moment: Int64? { source.moment }
    var versionLimit: Int64 { source.versionLimit }
    var clockLook: Int64? { source.clockLook }
    var unreadable: [String: Int] { source.unreadable }

    func next() throws(StoreError) -> [CopiedRow] {
        guard batches > 0 else { throw .read(StoreFault("interrupted")) }
        batches -= 1
        while rows.count < 1_000, case let more = try source.next(), !more.isEmpty { rows += more }
        defer { rows.removeFirst(min(1_000, rows.count)) }
        return Array(rows.prefix(1_000))
    }
}
#endif
