#if PostgreSQL
import StoreConformance
import Synchronization
import System
import Testing

@testable import PostgresStore
@testable import TokenStore

/// A store on a test's database, and its administrator.
struct TestAdministration {
    let database: TestDatabase
    let events: Events
    private let opened: Opened

    /// Closes the store when it is no longer used.
    private final class Opened: Sendable {
        let store: PostgresTokenStore
        let administrator: PostgresAdministrator

        init(_ store: PostgresTokenStore) throws {
            self.store = store
            administrator = try #require(store.administrator as? PostgresAdministrator)
        }

        deinit { store.close() }
    }

    var administrator: PostgresAdministrator { opened.administrator }
    var connections: PrimaryConnections { administrator.connections }
    var state: PostgresState { opened.store.state }

    /// What a store has reported.
    final class Events: Sendable {
        private let list = Mutex<[StoreEvent]>([])

        func add(_ event: StoreEvent) { list.withLock { $0.append(event) } }

        var all: [StoreEvent] { list.withLock(\.self) }
    }

    /// - Parameters:
    ///   - database: Shared with another one, or new.
    ///   - ring: Nil for a new one.
    ///   - retention: That of the store.
    ///   - now: What the clock of versions says, in microseconds since 1970; nil for the system's.
    init(
        _ database: TestDatabase? = nil, _ ring: KeyRing? = nil, _ retention: Retention = Retention(),
        now: Int64? = nil
    ) throws {
        let database = try database ?? TestDatabase()
        let events = Events()
        let versions = now.map { now in VersionClock(process: 7) { now } } ?? VersionClock(process: 7)
        self.database = database
        self.events = events
        opened = try Opened(
            PostgresTokenStore(
                database, ring: ring ?? .random(createdAt: 1), versions: versions,
                report: { events.add($0) }, change: { $0.retention = retention }))
        try database.allow(keys: 1, 2)
    }

    /// The texts that the store has reported, except that it is connected.
    var said: [String] { events.all.map(\.description).filter { !$0.hasPrefix("connected to") } }

    func put(_ info: String, under id: String, writtenAt: Int64? = nil, keepsNewer: Bool = false) async throws {
        try await put([(id, info)], writtenAt: writtenAt, keepsNewer: keepsNewer)
    }

    func put(_ tokens: [(id: String, info: String)], writtenAt: Int64? = nil, keepsNewer: Bool = false) async throws {
        let tokens = tokens.map {
            (token: Token(id: Array($0.id.utf8), info: Array($0.info.utf8)), writtenAt: writtenAt)
        }
        for outcome in await administrator.handle.store(tokens, keepsNewer: keepsNewer) { try outcome.get() }
    }

    func get(_ id: String) async throws -> String? {
        try await administrator.handle.fetch(Array(id.utf8)).map { String(decoding: $0, as: UTF8.self) }
    }

    /// The row of an id, also that of a removed token; nil if there is none.
    func row(of id: String) throws -> StoredToken? {
        let result = try database.connection().run(
            "SELECT \(Statement.columns), ctid FROM token WHERE key = \(state.key(of: id))")
        return result.rowCount == 0 ? nil : StoredToken(result, row: 0)
    }

    @discardableResult
    func begin(
        _ secret: String, of user: String, createdAt: Int64 = 1_000, expiresAt: Int64 = 1 << 40, perUser: Int = 20
    ) async throws -> UserSession {
        let key = try await administrator.handle.sessionKey(of: Array(secret.utf8))
        let session = UserSession(
            id: .random(), user: Array(user.utf8), createdAt: createdAt, expiresAt: expiresAt)
        let _: Int = try await administrator.handle.outcome {
            $0.createSession(session, key, perUser: perUser, completion: $1)
        }
        return session
    }

    func sessions(of user: String) async throws -> [UserSession] {
        try await administrator.handle.outcome { $0.listSessions(of: Array(user.utf8), completion: $1) }
    }
}
#endif
