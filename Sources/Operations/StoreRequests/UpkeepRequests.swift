package import SQLiteStore
package import TokenStore

/// Asks for the store in numbers.
package struct StatisticsOfStore: StoreRequest {
    package static let name = StoreRequestName.stats

    package init() {}

    package func answer(
        _ administrator: StoreAdministrator, _ progress: @escaping @Sendable (StoreAdministrator.Progress) -> Void
    ) async throws(StoreError) -> StoreAdministrator.Statistics {
        try await administrator.statistics()
    }
}

/// Checks the whole store.
package struct VerifyStore: StoreRequest {
    package static let name = StoreRequestName.verify

    package init() {}

    package func answer(
        _ administrator: StoreAdministrator, _ progress: @escaping @Sendable (StoreAdministrator.Progress) -> Void
    ) async throws(StoreError) -> StoreAdministrator.Verification {
        try await administrator.verify(progress)
    }
}

/// Writes a copy of the store.
package struct BackUpStore: StoreRequest {
    package static let name = StoreRequestName.backup
    /// Absolute, for whoever writes it may be in another folder.
    package var path: String

    package init(path: String) {
        self.path = path
    }

    package func answer(
        _ administrator: StoreAdministrator, _ progress: @escaping @Sendable (StoreAdministrator.Progress) -> Void
    ) async throws(StoreError) -> StoreAdministrator.Backup {
        guard path.hasPrefix("/") else { throw .refused("path is not absolute") }
        return try await administrator.backUp(to: path, progress)
    }
}

/// Seals all tokens with the newest key.
package struct RekeyStore: StoreRequest {
    package static let name = StoreRequestName.rekey

    package init() {}

    package func answer(
        _ administrator: StoreAdministrator, _ progress: @escaping @Sendable (StoreAdministrator.Progress) -> Void
    ) async throws(StoreError) -> StoreAdministrator.Rekeying {
        try await administrator.rekey(progress)
    }
}

/// Asks for the numbers of the keys.
package struct ListKeys: StoreRequest {
    package static let name = StoreRequestName.listKeys

    package struct Reply: Codable, Sendable {
        package var keys: [StoreAdministrator.Key]
    }

    package init() {}

    package func answer(
        _ administrator: StoreAdministrator, _ progress: @escaping @Sendable (StoreAdministrator.Progress) -> Void
    ) async throws(StoreError) -> Reply {
        Reply(keys: try await administrator.keys())
    }
}

/// Makes a key that seals from now on.
package struct AddKey: StoreRequest {
    package static let name = StoreRequestName.addKey

    package init() {}

    package func answer(
        _ administrator: StoreAdministrator, _ progress: @escaping @Sendable (StoreAdministrator.Progress) -> Void
    ) async throws(StoreError) -> StoreAdministrator.Key {
        try await administrator.addKey()
    }
}

/// Takes a key out of the ring.
package struct RetireKey: StoreRequest {
    package static let name = StoreRequestName.retireKey
    package var number: Int

    package struct Reply: Codable, Sendable {
        package var retired: Int
    }

    package init(number: Int) {
        self.number = number
    }

    package func answer(
        _ administrator: StoreAdministrator, _ progress: @escaping @Sendable (StoreAdministrator.Progress) -> Void
    ) async throws(StoreError) -> Reply {
        try await administrator.retireKey(numbered: number)
        return Reply(retired: number)
    }
}
