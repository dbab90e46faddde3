internal import TokenStore

/// Erases a user; called on any thread.
typealias Erasing = @Sendable (_ user: [UInt8]) async throws(StoreError) -> Erasure

/// A database that is open for writing, with everything that works on it.
struct OpenDatabase: Sendable {
    /// Locked for as long as the database is open.
    let directory: DataDirectory
    /// The path of the database's file.
    let path: String
    let options: StoreOptions
    let state: StoreState
    let writerThread: WriterThread
}
