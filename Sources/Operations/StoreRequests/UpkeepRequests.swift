package import Audit
package import TokenStore

/// Reads the store's figures.
package struct StatisticsOfStore: StoreRequest {
    package static let name = "stats"

    package init() {}

    package func answer(_ store: AuditedStore) async throws(StoreError) -> StoreStatistics {
        try await store.administrator.statistics()
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
    var path: String
    /// Whether the copy is left unchecked, as its requester verifies it; nil means no.
    var isUnchecked: Bool?
    /// Also absolute: the folder that the keys are copied into; nil for none.
    var keys: String?

    package func act(_ reply: StoreBackup) -> OperatorAct? {
        let keys = reply.keys.map { ", keys: \($0.joined(separator: ", "))" } ?? ""
        return ("backup", "\(reply.path), tokens: \(reply.tokens), bytes: \(reply.bytes)\(keys)")
    }

    package init(path: String, isUnchecked: Bool? = nil, keys: String? = nil) {
        (self.path, self.isUnchecked, self.keys) = (path, isUnchecked, keys)
    }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> StoreBackup {
        guard path.hasPrefix("/") else { throw .refused("path is not absolute") }
        return try await store.trail.recording(
            action,
            try await store.administrator.backUp(to: path, checks: isUnchecked != true, keys: keys, store.progress))
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

/// Walks over all rows, and encrypts those again that another key than the present one has encrypted.
package struct WalkStore: StoreRequest {
    package static let name = "walk"
    package var action: AuditEvent.Action? { .rekey }

    package init() {}

    package func act(_ reply: WalkReport) -> OperatorAct? {
        (
            "keyring rotate",
            "tokens encrypted again: \(reply.rekeyed) of \(reply.tokens), unreadable: \(reply.unreadableCount)"
        )
    }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> WalkReport {
        try await store.trail.recording(action, try await store.administrator.walk(store.progress))
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
        var fault: String?
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
        return try await store.trail.recording(action, try await ring.addKey()) { $1.key = "\($0.number)" }
    }
}

/// Makes a key the one that seals.
package struct UseKey: StoreRequest {
    package static let name = "keyring/use"
    package var action: AuditEvent.Action? { .useKey }
    var number: Int

    package init(number: Int) {
        self.number = number
    }

    package func act(_ reply: SealingKey) -> OperatorAct? { ("keyring rotate", "key \(reply.number) seals") }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> SealingKey {
        let ring = try store.keyRing
        return try await store.trail.recording(action, key: "\(number)", try await ring.useKey(numbered: number))
    }
}

/// Removes a key from the key ring.
package struct RetireKey: StoreRequest {
    package static let name = "keyring/retire"
    package var action: AuditEvent.Action? { .retireKey }
    var number: Int

    package struct Reply: Codable, Sendable {
        package var retired: Int
    }

    package func act(_ reply: Reply) -> OperatorAct? { ("keyring retire", "key \(reply.retired) retired") }

    package init(number: Int) {
        self.number = number
    }

    package func answer(_ store: AuditedStore) async throws(StoreError) -> Reply {
        let ring = try store.keyRing
        try await store.trail.recording(action, key: "\(number)", try await ring.retireKey(numbered: number))
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
