/// Backs up an open store.
package protocol StoreBackups: Sendable {
    /// Writes a copy of the store as of one moment, while the store is in use.
    ///
    /// The copy is made beside its place, checked, synced and only then renamed into it, replacing what was there. It is
    /// sealed as the store is; the key ring is no part of it.
    ///
    /// - Parameters:
    ///   - path: An absolute path; this process writes it.
    ///   - isRecorded: Whether it counts as the last backup if it succeeds; otherwise `recordBackup` is called when more was done
    ///     with it. One that fails counts, unless it could not even begin: a mistyped path is no failed backup.
    ///   - progress: Counted in bytes.
    func backUp(
        to path: String, isRecorded: Bool, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreBackup

    /// Notes how the last backup has ended.
    func recordBackup(isSuccessful: Bool) async
}

extension StoreBackups {
    /// The same, which counts as the last backup.
    package func backUp(
        to path: String, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreBackup {
        try await backUp(to: path, isRecorded: true, progress)
    }
}

/// A backup that was written.
package struct StoreBackup: Codable, Sendable {
    package var path: String
    package var tokens: Int
    package var bytes: Int

    package init(path: String, tokens: Int, bytes: Int) {
        self.path = path
        self.tokens = tokens
        self.bytes = bytes
    }
}
