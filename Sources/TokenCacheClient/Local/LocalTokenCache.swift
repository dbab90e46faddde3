public import Foundation

/// The user's token on this device.
///
/// Each user has a slot of their own, which all caches for the same place and user share, also those of other processes. The
/// caller's actor is not blocked.
public struct LocalTokenCache: TokenCaching {
    /// Where tokens are kept on the device.
    public enum Storage: Sendable, Hashable {
        /// Files in the folder at this URL, which is made with access for its owner only. Each user has one file, which stays out
        /// of backups and whose name is a hash of the user. Processes may share the folder. On tvOS use the Keychain: the system
        /// removes files there when it needs room.
        case directory(URL)
        /// The memory of each cache, for tests.
        case memory
        #if canImport(Security)
        /// The Keychain of this device, under this service, for example the app's bundle identifier.
        ///
        /// The access group is the app's own (its team's prefix and its bundle identifier), or one that it shares with its
        /// extensions. Processes that share tokens need an app group (`group.…`), as they take turns only there. On macOS the app
        /// must be signed with an entitlement for the group. The Keychain outlives the app: a new installation finds the tokens
        /// of an earlier one.
        case keychain(service: String, accessGroup: String)
        #endif
    }

    let user: String
    private let storage: any LocalStorage

    /// A user's slot.
    ///
    /// - Parameters:
    ///   - storage: Where tokens are kept.
    ///   - user: Whose token it is: any text that is different for each user of your app.
    public init(_ storage: Storage, user: String) {
        self.user = user
        self.storage =
            switch storage {
            case .directory(let folder): PrivateFile(url: folder.appending(path: SHA256.hexadecimal(user) + ".json"))
            case .memory: MemoryStorage()
            #if canImport(Security)
            case .keychain(let service, let accessGroup):
                KeychainStorage(service: service, account: user, accessGroup: accessGroup)
            #endif
            }
    }

    init(_ storage: any LocalStorage, user: String) {
        self.user = user
        self.storage = storage
    }

    /// The token on this device.
    ///
    /// - Throws: `TokenCacheError.locked` before the device was unlocked for the first time, `.laterFormat`, `.unreadable`
    ///   and `.storage`.
    public func fetch() async throws -> TokenInformation? {
        try await record()?.information
    }

    /// Keeps the token on this device.
    ///
    /// - Throws: The errors of `fetch` except `.unreadable`: such an item is replaced, one of a later format is not.
    public func store(_ information: TokenInformation) async throws {
        try await update { $0 = LocalRecord(information) }
    }

    /// Keeps a token that continues a login, unless that has ended or was replaced.
    func storeContinued(_ information: TokenInformation) async throws {
        let refusal = try await update { record -> TokenCacheError? in
            // Without an item there is surely no token. A damaged one says nothing, and is replaced.
            let isNone = record == nil && (try? storage.read()) == nil
            if let refusal = (isNone ? LocalRecord(nil) : record)?.refusal(of: information) { return refusal }
            record = LocalRecord(information)
            return nil
        }
        if let refusal { throw refusal }
    }

    /// Removes the token from this device, whatever its format: signing out always works.
    @concurrent public func clear() async throws {
        do {
            try storage.exclusively { () throws(TokenCacheError) in try storage.remove() }
        } catch {
            // A full disk may have no room for the lock's file.
            try storage.remove()
        }
    }

    // MARK: - Records

    /// What is known; nil if nothing is.
    @concurrent func record() async throws(TokenCacheError) -> LocalRecord? {
        try read()
    }

    /// Changes what is known, while no other task or process does.
    ///
    /// - Parameter change: Gets nil if nothing is known, or nothing that can be read.
    @concurrent @discardableResult
    func update<Result: Sendable>(_ change: @Sendable (inout LocalRecord?) -> Result) async throws(TokenCacheError)
        -> Result
    {
        try storage.exclusively { () throws(TokenCacheError) in
            var record: LocalRecord?
            do throws(TokenCacheError) {
                record = try read()
            } catch {
                // A damaged item is replaced.
                guard case .unreadable = error else { throw error }
            }
            let before = record
            let result = change(&record)
            if record?.refused == nil { record?.refused = before?.refused }
            if let record {
                if !record.isSame(as: before) { try storage.write(record.data(of: user)) }
            } else if before != nil {
                try storage.remove()
            }
            return result
        }
    }

    private func read() throws(TokenCacheError) -> LocalRecord? {
        guard let item = try storage.read() else { return nil }
        let (owner, record) = try LocalRecord.read(item)
        guard owner == user else { throw .unreadable("the local item is another user's") }
        return record
    }

    /// The slots in the same place with a sign-out that the server does not have, and the credentials to send it.
    @concurrent func waitingSignOuts() async throws -> [(LocalTokenCache, Credential)] {
        try storage.all().compactMap { storage in
            guard let item = try? storage.read(), let (user, record) = try? LocalRecord.read(item),
                record.information == nil, let credential = record.write?.credential
            else { return nil }
            return (LocalTokenCache(storage, user: user), credential)
        }
    }
}

extension LocalTokenCache {
    // MARK: - One refresh for all sessions and processes

    /// Waits until no other session or process of this device refreshes the user's token, and keeps them from it.
    ///
    /// - Parameter isOver: Whether nobody wants the lock any more.
    /// - Returns: The lock; nil if there can be none, for example on a full disk.
    @concurrent func lockRefreshes(unless isOver: @Sendable () async -> Bool) async -> RefreshLock? {
        do {
            // Waits for two minutes at most, as the process that holds the lock may be stopped, or its closure may hang.
            for _ in 0..<2_400 where await !isOver() {
                if let lock = try storage.lockRefreshes() { return lock }
                try await Task.sleep(for: .milliseconds(50))
            }
        } catch {}
        return nil
    }
}

extension LocalTokenCache: CustomStringConvertible, CustomReflectable {
    /// The type's name, without the user.
    public var description: String { "LocalTokenCache" }

    /// A mirror without the user and the token.
    public var customMirror: Mirror { Mirror(self, children: []) }
}

/// Where one item of bytes is kept on the device.
///
/// Its methods wait for the disk. Call them from any thread but the main one.
protocol LocalStorage: Sendable {
    /// The item; nil if there is surely none.
    func read() throws(TokenCacheError) -> Data?

    /// Replaces the item: after a crash, either the earlier one or this one is there, complete.
    func write(_ item: Data) throws(TokenCacheError)

    /// Removes the item, if there is one. Needs no room on the disk.
    func remove() throws(TokenCacheError)

    /// The items of all users in the same place, as storages of their own.
    func all() throws(TokenCacheError) -> [any LocalStorage]

    /// The lock for refreshes of the user's token; nil if it is held.
    func lockRefreshes() throws(TokenCacheError) -> RefreshLock?

    /// Runs the body while no other task or process runs one in the same place.
    func exclusively<Result>(_ body: () throws(TokenCacheError) -> Result) throws(TokenCacheError) -> Result
}

/// Keeps the item as long as the process lives; copies share it.
struct MemoryStorage: LocalStorage {
    private let item = Locked<Data?>(nil)
    private let turn = NSRecursiveLock()
    private let isRefreshing = Locked(false)

    func read() -> Data? {
        item.withLock { $0 }
    }

    func write(_ item: Data) {
        self.item.withLock { $0 = item }
    }

    func remove() {
        item.withLock { $0 = nil }
    }

    func all() -> [any LocalStorage] {
        [self]
    }

    func lockRefreshes() -> RefreshLock? {
        RefreshLock(isRefreshing)
    }

    func exclusively<Result>(_ body: () throws(TokenCacheError) -> Result) throws(TokenCacheError) -> Result {
        turn.lock()
        defer { turn.unlock() }
        return try body()
    }
}
