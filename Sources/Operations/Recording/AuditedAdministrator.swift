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

/// Other backups, each of which is in the audit log before its outcome is known.
struct AuditedBackups: StoreBackups {
    private let base: any StoreBackups
    private let trail: OperatorTrail

    init(_ base: any StoreBackups, _ trail: OperatorTrail) {
        self.base = base
        self.trail = trail
    }

    func backUp(
        to path: String, isRecorded: Bool, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreBackup {
        try await trail.recording(.backUp) { () async throws(StoreError) in
            try await base.backUp(to: path, isRecorded: isRecorded, progress)
        }
    }

    func recordBackup(isSuccessful: Bool) async {
        await base.recordBackup(isSuccessful: isSuccessful)
    }
}

/// Another administrator of a key ring, each of whose changes is in the audit log before it returns.
struct AuditedKeyRing: KeyRingAdministrator {
    private let base: any KeyRingAdministrator
    private let trail: OperatorTrail

    init(_ base: any KeyRingAdministrator, _ trail: OperatorTrail) {
        self.base = base
        self.trail = trail
    }

    func keys() async throws(StoreError) -> [SealingKey] { try await base.keys() }

    func missingKeys() async throws(StoreError) -> [Int]? { try await base.missingKeys() }

    func addKey() async throws(StoreError) -> SealingKey {
        try await trail.recording(.addKey) { () async throws(StoreError) in
            try await base.addKey()
        } _: { added, deed in
            deed.key = "\(added.number)"
        }
    }

    func useKey(numbered number: Int) async throws(StoreError) -> SealingKey {
        try await trail.recording(.useKey, key: "\(number)") { () async throws(StoreError) in
            try await base.useKey(numbered: number)
        }
    }

    func retireKey(numbered number: Int) async throws(StoreError) {
        try await trail.recording(.retireKey, key: "\(number)") { () async throws(StoreError) in
            try await base.retireKey(numbered: number)
        }
    }

    func rekey(_ progress: @escaping @Sendable (StoreProgress) -> Void) async throws(StoreError) -> Rekeying {
        try await trail.recording(.rekey) { () async throws(StoreError) in
            try await base.rekey(progress)
        }
    }
}

/// Makes the store's administrator for a requester: with an audit log, one whose acts are recorded as the requester's.
struct Administrators: Sendable {
    private let make: @Sendable (Requester) -> any StoreAdministrator

    init(_ make: @escaping @Sendable (Requester) -> any StoreAdministrator) {
        self.make = make
    }

    func administrator(for requester: Requester) -> any StoreAdministrator { make(requester) }
}
