package import Audit
package import TokenStore

/// Reads the store's figures.
package struct StatisticsOfStore: StoreRequest {
    package static let name = "stats"
    /// Whether tokens are counted rather than estimated, whatever time that takes; nil means no.
    package var exactly: Bool?

    package init(exactly: Bool? = nil) {
        self.exactly = exactly
    }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> StoreStatistics {
        try await store.administrator.statistics(exactly: exactly ?? false)
    }
}

/// Checks the whole store.
package struct VerifyStore: StoreRequest {
    package static let name = "verify"

    package init() {}

    package func answer(_ store: AuditedStore) async throws(StoreError) -> StoreVerification {
        try await store.administrator.verify(store.progress)
    }
}

/// Writes a copy of the store.
package struct BackUpStore: StoreRequest {
    package static let name = "backup"
    package var action: AuditEvent.Action? { .backUp }
    /// An absolute path, because the server's working directory may be another one.
    package var path: String

    package func act(_ reply: StoreBackup) -> OperatorAct? {
        ("backup", "\(reply.path), tokens: \(reply.tokens), bytes: \(reply.bytes)")
    }

    package init(path: String) {
        self.path = path
    }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> StoreBackup {
        guard path.hasPrefix("/") else { throw .refused("path is not absolute") }
        return try await store.trail.recording(action) { () async throws(StoreError) in
            try await store.administrator.backUp(to: path, store.progress)
        }
    }
}

/// Notes how the last backup has ended, after it was verified and copied elsewhere.
package struct RecordBackup: StoreRequest {
    package static let name = "backup/record"
    package var isSuccessful: Bool
    /// Where the backup is, if it got its name only after it was written and verified; otherwise nil.
    package var path: String?

    package init(isSuccessful: Bool, path: String? = nil) {
        self.isSuccessful = isSuccessful
        self.path = path
    }

    package func act(_ reply: NoReply) -> OperatorAct? {
        path.map { path in
            ("backup", "verified and named \(path)\(isSuccessful ? "" : ", but not copied elsewhere")")
        }
    }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> NoReply {
        try await store.administrator.recordBackup(isSuccessful: isSuccessful)
        return NoReply()
    }
}

/// Encrypts all tokens again, with the key that seals new ones.
package struct RekeyStore: StoreRequest {
    package static let name = "rekey"
    package var action: AuditEvent.Action? { .rekey }

    package init() {}

    package func act(_ reply: Rekeying) -> OperatorAct? {
        (
            "keyring rotate",
            "tokens encrypted again: \(reply.rekeyed) of \(reply.tokens), unreadable: \(reply.unreadable)"
        )
    }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> Rekeying {
        let ring = try store.keyRing
        return try await store.trail.recording(action) { () async throws(StoreError) in
            try await ring.rekey(store.progress)
        }
    }
}

/// Lists the keys, without the keys themselves.
package struct ListKeys: StoreRequest {
    package static let name = "keyring/list"

    package struct Reply: Codable, Sendable {
        package var keys: [SealingKey]
        /// Numbers of keys that rows are sealed with and the ring lacks; nil if the store does not look.
        package var missing: [Int]?
        /// Why the next start cannot use the ring's file; nil if it can.
        package var fault: String?
    }

    package init() {}

    package func answer(_ store: AuditedStore) async throws(StoreError) -> Reply {
        let ring = try store.keyRing
        let fault = ring.fileFault.map { "\($0)" }
        return Reply(keys: try await ring.keys(), missing: try await ring.missingKeys(), fault: fault)
    }
}

/// Creates a key, which seals from now on if no other server shares the store.
package struct AddKey: StoreRequest {
    package static let name = "keyring/add"
    package var action: AuditEvent.Action? { .addKey }

    package init() {}

    package func act(_ reply: SealingKey) -> OperatorAct? { ("keyring add", "key \(reply.number) added") }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> SealingKey {
        let ring = try store.keyRing
        return try await store.trail.recording(action) { () async throws(StoreError) in
            try await ring.addKey()
        } _: { added, deed in
            deed.key = "\(added.number)"
        }
    }
}

/// Makes a key the one that seals.
package struct UseKey: StoreRequest {
    package static let name = "keyring/use"
    package var action: AuditEvent.Action? { .useKey }
    package var number: Int

    package init(number: Int) {
        self.number = number
    }

    package func act(_ reply: SealingKey) -> OperatorAct? { ("keyring rotate", "key \(reply.number) seals") }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> SealingKey {
        let ring = try store.keyRing
        return try await store.trail.recording(action, key: "\(number)") { () async throws(StoreError) in
            try await ring.useKey(numbered: number)
        }
    }
}

/// Removes a key from the key ring.
package struct RetireKey: StoreRequest {
    package static let name = "keyring/retire"
    package var action: AuditEvent.Action? { .retireKey }
    package var number: Int

    package struct Reply: Codable, Sendable {
        package var retired: Int
    }

    package func act(_ reply: Reply) -> OperatorAct? { ("keyring retire", "key \(reply.retired) retired") }

    package init(number: Int) {
        self.number = number
    }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> Reply {
        let ring = try store.keyRing
        try await store.trail.recording(action, key: "\(number)") { () async throws(StoreError) in
            try await ring.retireKey(numbered: number)
        }
        return Reply(retired: number)
    }
}

extension AuditedStore {
    fileprivate var keyRing: any KeyRingAdministrator {
        get throws(StoreError) {
            guard let keyRing = administrator.keyRing else { throw .refused(StoreCapability.keys.absence) }
            return keyRing
        }
    }
}
