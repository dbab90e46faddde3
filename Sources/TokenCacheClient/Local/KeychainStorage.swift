#if canImport(Security)
import Foundation
import Security

/// Keeps the item in the Keychain of this device, readable once the device was unlocked after its start; it is neither in
/// backups nor on other devices (`kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly`).
///
/// Every query names the access group: otherwise the Keychain would read, and remove, items in all groups of the app.
struct KeychainStorage: LocalStorage {
    let service: String
    let account: String
    let accessGroup: String

    private var group: [CFString: Any] {
        [
            kSecClass: kSecClassGenericPassword, kSecAttrService: service, kSecAttrAccessGroup: accessGroup,
            kSecUseDataProtectionKeychain: true,
        ]
    }

    private var query: [CFString: Any] {
        group.merging([kSecAttrAccount: account]) { _, new in new }
    }

    func read() throws(TokenCacheError) -> Data? {
        guard let found = try Self.find(query, [kSecReturnData: true, kSecMatchLimit: kSecMatchLimitOne]) else {
            return nil
        }
        guard let item = found as? Data else { throw .unreadable("the Keychain's item is not data") }
        return item
    }

    func write(_ item: Data) throws(TokenCacheError) {
        let values: [CFString: Any] = [
            kSecValueData: item, kSecAttrAccessible: kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly,
        ]
        var status = SecItemUpdate(query as CFDictionary, values as CFDictionary)
        if status == errSecItemNotFound {
            let whole = query.merging(values) { _, new in new }
            status = unsafe SecItemAdd(whole as CFDictionary, nil)
            // Another process of the group was faster.
            if status == errSecDuplicateItem {
                status = SecItemUpdate(query as CFDictionary, values as CFDictionary)
            }
        }
        guard status == errSecSuccess else { throw Self.failure("write", status) }
    }

    func remove() throws(TokenCacheError) {
        let status = SecItemDelete(query as CFDictionary)
        guard status == errSecSuccess || status == errSecItemNotFound else { throw Self.failure("remove", status) }
    }

    func all() throws(TokenCacheError) -> [any LocalStorage] {
        let found = try Self.find(group, [kSecReturnAttributes: true, kSecMatchLimit: kSecMatchLimitAll])
        return (found as? [[String: Any]] ?? []).compactMap { attributes in
            guard let account = attributes[kSecAttrAccount as String] as? String else { return nil }
            return KeychainStorage(service: service, account: account, accessGroup: accessGroup)
        }
    }

    func lockRefreshes() throws(TokenCacheError) -> RefreshLock? {
        try RefreshLock.file(in: lockFolder, hashOfUser: SHA256.hexadecimal(account))
    }

    func exclusively<Result>(_ body: () throws(TokenCacheError) -> Result) throws(TokenCacheError) -> Result {
        try PrivateFile.exclusively(in: lockFolder, body)
    }

    /// Where the lock files are: in the container of the group, if it is an app group (`group.…`), otherwise in the process's
    /// own folder, where only its own tasks use them.
    private var lockFolder: URL {
        let manager = FileManager.default
        var folder = manager.temporaryDirectory.appending(path: "TokenCacheClient")
        // macOS returns a container for any other name too, which the app may not be allowed to use.
        if accessGroup.hasPrefix("group."),
            let container = manager.containerURL(forSecurityApplicationGroupIdentifier: accessGroup)
        {
            let shared = container.appending(path: "Library/Caches/TokenCacheClient")
            if (try? PrivateFile.makeFolder(shared)) != nil { folder = shared }
        }
        return folder
    }

    private static func find(_ query: [CFString: Any], _ more: [CFString: Any]) throws(TokenCacheError) -> CFTypeRef? {
        let search = query.merging(more) { _, new in new }
        var found: CFTypeRef?
        // The system fills the reference while the call lasts.
        let status = unsafe SecItemCopyMatching(search as CFDictionary, &found)
        switch status {
        case errSecSuccess: return found
        case errSecItemNotFound: return nil
        default: throw failure("read", status)
        }
    }

    private static func failure(_ operation: String, _ status: OSStatus) -> TokenCacheError {
        if status == errSecInteractionNotAllowed { return .locked }
        let detail = unsafe SecCopyErrorMessageString(status, nil) as String?
        return .storage(operation: operation, code: Int(status), detail: detail ?? "")
    }
}
#endif
