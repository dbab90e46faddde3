internal import System
internal import TokenStore

/// The key ring in the folders in which systemd searches for credentials (systemd.exec(5), LoadCredential=).
enum StoreCredential {
    static let standardFolders = [
        "/etc/credstore", "/etc/credstore.encrypted", "/run/credstore", "/run/credstore.encrypted",
    ]

    /// The path of the credential in one of the folders; nil if there is none.
    static func path(in folders: [String] = standardFolders) -> String? {
        folders.map { "\($0)/\(KeyRingFile.credentialName)" }.first { FileStatus($0) != nil }
    }

    /// Whether a file is one that systemd makes for a service and that exists only while the service runs.
    static func isTransient(_ path: String) -> Bool {
        path.hasPrefix("/run/credentials/") && FileStatus(path) == nil
    }
}
