#if canImport(Security)
internal import Foundation
internal import Security

/// Keeps the item in the Keychain of this device, readable from the first unlocking after a start on; it is neither in
/// backups nor on other devices (`kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly`).
///
/// The Keychain outlives the app. So the app's own defaults, which do not, hold a marker: an item without it belongs to an
/// earlier installation and is removed. With an access group there is no marker, because the group's apps and extensions
/// have different defaults.
struct KeychainStorage: LocalStorage {
    let service: String
    let account: String
    let accessGroup: String?

    private var marker: String { "TokenCacheClient.installed." + service }
    private var isOfThisInstallation: Bool {
        accessGroup != nil || UserDefaults.standard.bool(forKey: marker)
    }

    private var query: [CFString: Any] {
        var query: [CFString: Any] = [
            kSecClass: kSecClassGenericPassword, kSecAttrService: service, kSecAttrAccount: account,
            kSecUseDataProtectionKeychain: true,
        ]
        if let accessGroup { query[kSecAttrAccessGroup] = accessGroup }
        return query
    }

    func read() throws(TokenCacheError) -> Data? {
        var search = query
        search[kSecReturnData] = true
        search[kSecMatchLimit] = kSecMatchLimitOne
        var found: CFTypeRef?
        // The system fills the reference while the call lasts.
        let status = unsafe SecItemCopyMatching(search as CFDictionary, &found)
        switch status {
        case errSecSuccess: break
        case errSecItemNotFound: return nil
        default: throw Self.failure("read", status)
        }
        // Only now, as the defaults cannot be read before the first unlocking either.
        guard isOfThisInstallation else {
            try remove()
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
        if accessGroup == nil { UserDefaults.standard.set(true, forKey: marker) }
    }

    func remove() throws(TokenCacheError) {
        let status = SecItemDelete(query as CFDictionary)
        guard status == errSecSuccess || status == errSecItemNotFound else { throw Self.failure("remove", status) }
    }

    private static func failure(_ operation: String, _ status: OSStatus) -> TokenCacheError {
        status == errSecInteractionNotAllowed ? .locked : .storage(operation: operation, code: Int(status))
    }
}
#endif
