internal import Audit
internal import TokenStore

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
