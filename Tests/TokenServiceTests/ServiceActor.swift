import HTTP
import TokenService
import TokenStore

/// A service with a thread of its own, as far as the store can tell: an actor that hands writes over at once.
actor ServiceActor {
    private var handle: (any StoreHandle)?
    private var service: TokenService?

    static func open(_ store: any TokenStore, _ answers: AnswerCache) async throws -> ServiceActor {
        let actor = ServiceActor()
        try await actor.start(store, answers)
        return actor
    }

    private func start(_ store: any TokenStore, _ answers: AnswerCache) throws {
        let handle = try store.makeHandle { work in Task { await self.run(work) } }
        self.handle = handle
        service = TokenService(
            settings: TokenService.Settings(), handle: handle, answers: answers, report: { _, _ in }
        )
    }

    private func run(_ work: @Sendable () -> Void) {
        work()
    }

    /// The token info that a GET gives; nil if there is none.
    func get(_ id: String) async -> String? {
        guard let service else { return nil }
        let body = await service.body("GET /token?unique_id=\(id) HTTP/1.1\r\nHost: a\r\n\r\n")
        let start = #"{"status":"true","token_info":""#
        return body.hasPrefix(start) ? String(body.dropFirst(start.count).dropLast(2)) : nil
    }

    /// POSTs a token info; others may do so meanwhile, and share its commit.
    func put(_ tokenInfo: String, under id: String) async throws {
        // Runs as soon as the call below waits, like a loop's end of turn.
        Task { self.flush() }
        guard let service else { return }
        let target = "/token?unique_id=\(id)&token_info=\(tokenInfo)"
        guard await service.body("POST \(target) HTTP/1.1\r\nHost: a\r\n\r\n") == stored else {
            throw StoreError.closed
        }
    }

    func flush() {
        handle?.flush()
    }
}
