import SQLiteStore
import TokenStore

/// A session with a thread of its own, as far as the store can tell: an actor that hands writes over at once.
actor SessionActor {
    private var session: (any TokenSession)?

    static func open(_ store: SQLiteTokenStore) async throws -> SessionActor {
        let actor = SessionActor()
        try await actor.start(store)
        return actor
    }

    private func start(_ store: SQLiteTokenStore) throws {
        session = try store.makeSession { work in Task { await self.run(work) } }
    }

    private func run(_ work: @Sendable () -> Void) {
        work()
    }

    func get(_ id: String) async throws -> String? {
        // As at the end of a turn: no read transaction stays open.
        defer { flush() }
        guard let session,
            case .found(let tokenInfo, _) = try session.fetch(
                Array(id.utf8), upTo: .max, orLater: { fatalError("SQLite reads at once") })
        else {
            return nil
        }
        return String(decoding: tokenInfo, as: UTF8.self)
    }

    /// Stores a value; others may store meanwhile, and share its commit.
    func put(_ value: String, under id: String) async throws {
        // Runs as soon as the call below waits, like a loop's end of turn.
        Task { self.flush() }
        guard let session else { return }
        let outcome = await withCheckedContinuation { continuation in
            session.store(Array(value.utf8), under: Array(id.utf8)) { continuation.resume(returning: $0) }
        }
        try outcome.get()
    }

    func flush() {
        session?.flush()
    }
}
