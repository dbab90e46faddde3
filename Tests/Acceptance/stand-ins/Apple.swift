// swift-format-ignore-file
// The names are Apple's.

// What the client library uses of Apple's systems, with its types, so that the lines that are for those systems alone are compiled
// somewhere: test_client.py compiles the library with this file and with empty modules `Darwin` and `Security`.
import Foundation

let F_FULLFSYNC: Int32 = 51

typealias CFString = String
typealias CFDictionary = [String: Any]
typealias CFTypeRef = AnyObject
typealias CFTypeID = UInt
typealias OSStatus = Int32

func CFGetTypeID(_ object: NSNumber) -> CFTypeID { 0 }
func CFBooleanGetTypeID() -> CFTypeID { 0 }

let kSecClass = "class"
let kSecClassGenericPassword = "genp"
let kSecAttrService = "svce"
let kSecAttrAccount = "acct"
let kSecAttrAccessGroup = "agrp"
let kSecAttrAccessible = "pdmn"
let kSecAttrAccessibleAfterFirstUnlockThisDeviceOnly = "cku"
let kSecUseDataProtectionKeychain = "nleg"
let kSecReturnData = "r_Data"
let kSecReturnAttributes = "r_Attributes"
let kSecMatchLimit = "m_Limit"
let kSecMatchLimitOne = "m_LimitOne"
let kSecMatchLimitAll = "m_LimitAll"
let kSecValueData = "v_Data"

let errSecSuccess: OSStatus = 0
let errSecItemNotFound: OSStatus = -25_300
let errSecDuplicateItem: OSStatus = -25_299
let errSecInteractionNotAllowed: OSStatus = -25_308

func SecItemCopyMatching(_ query: CFDictionary, _ result: UnsafeMutablePointer<CFTypeRef?>?) -> OSStatus { 0 }
func SecItemAdd(_ attributes: CFDictionary, _ result: UnsafeMutablePointer<CFTypeRef?>?) -> OSStatus { 0 }
func SecItemUpdate(_ query: CFDictionary, _ attributesToUpdate: CFDictionary) -> OSStatus { 0 }
func SecItemDelete(_ query: CFDictionary) -> OSStatus { 0 }
func SecCopyErrorMessageString(_ status: OSStatus, _ reserved: UnsafeMutableRawPointer?) -> CFString? { nil }

extension ProcessInfo {
    func performExpiringActivity(withReason reason: String, using block: @escaping @Sendable (Bool) -> Void) {}
}

extension FileManager {
    func containerURL(forSecurityApplicationGroupIdentifier groupIdentifier: String) -> URL? { nil }
}
