/// Tells whether a file was written or replaced: modification time, size and identity.
///
/// Links are followed: renewing a certificate often only points a link elsewhere.
package struct FileStamp: Hashable, Sendable {
    private let seconds: Int
    private let nanoseconds: Int
    private let size: Int
    private let identity: FileIdentity

    /// Nil for a file that does not exist or that this user may not see.
    package init?(path: String) {
        guard let status = FileStatus(path) else { return nil }
        (seconds, nanoseconds) = status.modificationTime
        size = status.size
        identity = status.identity
    }
}
