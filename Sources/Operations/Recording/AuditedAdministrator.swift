internal import Audit
internal import TokenStore

/// Another administrator, each of whose actions on users' tokens and sessions, and on the store as a whole, is in the audit log
/// before it returns.
struct AuditedAdministrator: StoreAdministrator {
    private let base: any StoreAdministrator
    private let trail: OperatorTrail

    init(_ base: any StoreAdministrator, _ trail: OperatorTrail) {
        self.base = base
        self.trail = trail
    }

    var backups: (any StoreBackups)? { base.backups.map { AuditedBackups($0, trail) } }
    var keyRing: (any KeyRingAdministrator)? { base.keyRing.map { AuditedKeyRing($0, trail) } }
    var verifier: (any StoreVerifier)? { base.verifier }
    var users: any UserAdministrator { AuditedUserAdministrator(base.users, trail) }

    /// Is one event without a user: who reads all tokens reads those of every user.
    func page(after cursor: StoreCursor?, limit: Int) async throws(StoreError) -> TokenPage {
        try await trail.recording(.list) { () async throws(StoreError) in
            try await base.page(after: cursor, limit: limit)
        }
    }

    func exportPage(after cursor: StoreCursor?, limit: Int) async throws(StoreError) -> TokenPage {
        try await trail.recording(.export) { () async throws(StoreError) in
            try await base.exportPage(after: cursor, limit: limit)
        }
    }

    func statistics(exactly: Bool) async throws(StoreError) -> StoreStatistics {
        try await base.statistics(exactly: exactly)
    }
}

private struct AuditedUserAdministrator: UserAdministrator {
    private let base: any UserAdministrator
    private let trail: OperatorTrail

    init(_ base: any UserAdministrator, _ trail: OperatorTrail) {
        self.base = base
        self.trail = trail
    }

    func fetch(_ id: [UInt8]) async throws(StoreError) -> [UInt8]? {
        try await trail.recording(.read, user: id) { () async throws(StoreError) in
            try await base.fetch(id)
        } _: { found, deed in
            if found == nil { deed.outcome = .notFound }
        }
    }

    func store(
        _ tokens: [(token: Token, writtenAt: Int64?)], keepsNewer: Bool
    ) async -> [Result<Void, StoreError>] {
        func allFailed(_ error: StoreError) -> [Result<Void, StoreError>] { tokens.map { _ in .failure(error) } }
        do throws(StoreError) {
            try trail.permit(.store)
        } catch {
            return allFailed(error)
        }
        let outcomes = await base.store(tokens, keepsNewer: keepsNewer)
        do throws(StoreError) {
            try trail.record(
                zip(tokens, outcomes).map { written, outcome in
                    switch outcome {
                    case .success: .init(.store, .ok, user: written.token.id)
                    case .failure(let error): .init(.store, OperatorTrail.outcome(of: error), user: written.token.id)
                    }
                })
        } catch {
            return allFailed(error)
        }
        return outcomes
    }

    func remove(_ ids: [[UInt8]]) async throws(StoreError) -> [Bool] {
        try trail.permit(.remove)
        let removed: [Bool]
        do throws(StoreError) {
            removed = try await base.remove(ids)
        } catch {
            try? trail.record(ids.map { .init(.remove, OperatorTrail.outcome(of: error), user: $0) })
            throw error
        }
        try trail.record(zip(ids, removed).map { .init(.remove, $1 ? .ok : .notFound, user: $0) })
        return removed
    }

    func sessionKey(of secret: [UInt8]) async throws(StoreError) -> SessionKey { try await base.sessionKey(of: secret) }

    func createSession(_ request: NewSession) async throws(StoreError) -> CreatedSession {
        try await trail.recording(.createSession, user: request.user, session: request.id) {
            () async throws(StoreError) in
            try await base.createSession(request)
        }
    }

    func sessions(of user: [UInt8]) async throws(StoreError) -> [UserSession] {
        try await trail.recording(.listSessions, user: user) { () async throws(StoreError) in
            try await base.sessions(of: user)
        }
    }

    func endSession(id: SessionID) async throws(StoreError) -> EndedSession? {
        try await trail.recording(.endSession, session: id) { () async throws(StoreError) in
            try await base.endSession(id: id)
        } _: { ended, deed in
            deed.user = ended?.user
            if ended == nil { deed.outcome = .notFound }
        }
    }

    func endSessions(of user: [UInt8]) async throws(StoreError) -> Int {
        try await trail.recording(.endSessions, user: user) { () async throws(StoreError) in
            try await base.endSessions(of: user)
        } _: { ended, deed in
            if ended == 0 { deed.outcome = .notFound }
        }
    }

    func erase(_ user: [UInt8]) async throws(StoreError) -> Erasure {
        try await trail.recording(.erase, user: user) { () async throws(StoreError) in
            try await base.erase(user)
        }
    }
}
