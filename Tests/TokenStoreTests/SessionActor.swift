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
        var value: [UInt8] = []
        let isFound = try await session?.fetch(Array(id.utf8), appendingTo: &value) ?? false
        return isFound ? String(decoding: value, as: UTF8.self) : nil
    }

    /// Stores a value; others may store meanwhile, and share its commit.
    func put(_ value: String, under id: String) async throws {
        // Runs as soon as the call below waits, like a loop's end of turn.
        Task { self.flush() }
        try await session?.store(Array(value.utf8), under: Array(id.utf8))
    }

    func flush() {
        session?.flush()
    }
}
