public import Foundation

/// The user's token on this device.
///
/// Each user has a slot of their own; copies and further caches for the same place and user share it, also those of other
/// processes. Nothing of it waits on the caller's actor.
public struct LocalTokenCache: TokenCaching {
    /// Where tokens are kept on the device.
    public enum Storage: Sendable, Hashable {
        /// Files in the folder at this URL, which is made with access for its owner only. Each user has one file, which stays out
        /// of backups and whose name is a hash of the user. Processes may share the folder. On tvOS, files that the system does
        /// not remove when it needs room do not exist: use the Keychain there.
        case directory(URL)
        /// Nowhere: each cache has its own memory, for tests.
        case memory
        #if canImport(Security)
        /// The Keychain of this device, under this service, for example the app's bundle identifier.
        ///
        /// The access group is the app's own (its team's prefix and its bundle identifier), or one that it shares with its
        /// extensions: without it, an item of another group could be meant. Processes that share it need an app group
        /// (`group.…`): only there do they take turns. On macOS the app must be signed with an entitlement for it. The Keychain outlives the app: tokens of an earlier installation are still there after the next one.
        case keychain(service: String, accessGroup: String)
        #endif
    }

    let user: String
    private let storage: any LocalStorage

    /// A user's slot.
    ///
    /// - Parameters:
    ///   - storage: Where tokens are kept.
    ///   - user: Whose token it is: any text that your app tells users apart by.
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
    /// - Throws: As `fetch`. An item that cannot be read is replaced, one of a later format is left alone.
    public func store(_ information: TokenInformation) async throws {
        try await update { $0 = LocalRecord(information) }
    }

    /// Removes the token from this device, whatever its format: signing out always works.
    @concurrent public func clear() async throws {
        // Without the lock, for which there may be no room, either.
        try storage.remove()
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
                // Nobody can use what is damaged.
                guard case .unreadable = error else { throw error }
            }
            let before = record
            let result = change(&record)
            if let record {
                let isSame = record.isSame(as: before) && record.refreshingUntil == before?.refreshingUntil
                if !isSame { try storage.write(record.data(of: user)) }
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

    /// The slots in the same place that hold a sign-out which the server does not have, and by what it can be sent.
    @concurrent func waitingSignOuts() async throws -> [(LocalTokenCache, Credential)] {
        try storage.all().compactMap { storage in
            guard let item = try? storage.read(), let (user, record) = try? LocalRecord.read(item),
                record.information == nil, let credential = record.write?.credential
            else { return nil }
            return (LocalTokenCache(storage, user: user), credential)
        }
    }
}

extension LocalTokenCache: SharedTokenCaching {
    /// A refresh that takes longer is left to the next one: its process may have ended.
    private static let refreshLimit: TimeInterval = 60

    private enum Turn: Sendable {
        case begins
        case waits
        case isDone(TokenInformation)
    }

    func beginRefresh(of old: TokenInformation) async -> TokenInformation? {
        while !Task.isCancelled {
            let turn = try? await update { record -> Turn in
                guard let found = record?.information else { return .begins }
                if found.token != old.token { return .isDone(found) }
                let now = Date()
                // A time that is further away is that of a clock which has been set back since.
                if let until = record?.refreshingUntil, until > now, until < now + 2 * Self.refreshLimit {
                    return .waits
                }
                record?.refreshingUntil = now + Self.refreshLimit
                return .begins
            }
            switch turn {
            case .isDone(let found): return found
            case .waits: try? await Task.sleep(for: .milliseconds(50))
            case .begins, nil: return nil
            }
        }
        return nil
    }

    func endRefresh() async {
        _ = try? await update { $0?.refreshingUntil = nil }
    }

    func isWriteWaiting() -> Bool {
        false
    }

    func report(to report: @escaping @Sendable (any Error) -> Void) {}
}

extension LocalTokenCache: CustomStringConvertible, CustomReflectable {
    /// Nothing of the user.
    public var description: String { "LocalTokenCache" }

    /// A mirror without the user and the token.
    public var customMirror: Mirror { Mirror(self, children: []) }
}
