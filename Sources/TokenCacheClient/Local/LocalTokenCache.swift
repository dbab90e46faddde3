public import Foundation

/// The user's token on this device.
///
/// Each user has a slot of their own; copies and further caches for the same place and user share it.
public struct LocalTokenCache: TokenCaching {
    /// Where tokens are kept on the device.
    public enum Storage: Sendable, Hashable {
        /// Files in the folder at this URL, which is made with access for its owner only. Each user has one file, which stays out
        /// of backups and whose name is a hash of the user. Processes may share the folder.
        case file(URL)
        /// Nowhere: each cache has its own memory, for tests.
        case memory
        #if canImport(Security)
        /// The Keychain of this device, under this service, for example the app's bundle identifier. With an access group,
        /// the apps and extensions of the group share the tokens. On macOS the app must be signed with an entitlement for it.
        case keychain(service: String, accessGroup: String? = nil)
        #endif
    }

    private let user: String
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
            case .file(let folder): PrivateFile(url: folder.appending(path: SHA256.hexadecimal(user) + ".json"))
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
        guard let item = try storage.read() else { return nil }
        return try TokenInformation(text: StoredItem(item, of: user).text)
    }

    /// Keeps the token on this device.
    ///
    /// - Throws: As `fetch`. An item that cannot be read is replaced, one of a later format is left alone.
    public func cache(_ information: TokenInformation) async throws {
        if let item = try storage.read() {
            do {
                _ = try StoredItem(item, of: user)
            } catch TokenCacheError.unreadable {
                // Nobody can use it.
            }
        }
        try storage.write(StoredItem(text: information.text).data(of: user))
    }

    /// Removes the token from this device, whatever its format: signing out always works.
    public func clear() async throws {
        try storage.remove()
    }
}

extension LocalTokenCache: CustomStringConvertible, CustomReflectable {
    /// Nothing of the user.
    public var description: String { "LocalTokenCache" }

    /// A mirror without the user and the token.
    public var customMirror: Mirror { Mirror(self, children: []) }
}

/// What a slot holds, as JSON: `{"format":1,"token_info":"...","user":"..."}`.
struct StoredItem {
    /// The token information's text form.
    let text: String

    private static let format = 1

    init(text: String) {
        self.text = text
    }

    init(_ data: Data, of user: String) throws(TokenCacheError) {
        guard let value = try? JSONReader.value(data), case .object(let members) = value,
            case .number(let number)? = members["format"], let format = Int(number)
        else { throw .unreadable("the local item is damaged") }
        guard format <= Self.format else { throw .laterFormat(found: format) }
        guard members["user"]?.string == user else { throw .unreadable("the local item is another user's") }
        guard let text = members["token_info"]?.string else { throw .unreadable("the local item has no token") }
        self.text = text
    }

    func data(of user: String) -> Data {
        let members: [String: TokenInformation.Value] = [
            "format": .number(String(Self.format)), "token_info": .string(text), "user": .string(user),
        ]
        return Data(JSONWriter.text(.object(members)).utf8)
    }
}
