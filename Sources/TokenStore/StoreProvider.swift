/// The store that the settings describe, while it is closed: how it is opened, and what can be done with it until then.
///
/// What only some stores can do is nil for the others; see `StoreCapability`.
///
/// Any thread.
package protocol StoreProvider: Sendable {
    var software: StoreSoftware { get }

    /// Names of the files that the store keeps in the data folder; empty for a store that keeps none there.
    var fileNames: [String] { get }

    /// Whether several processes may have the store open at the same time; otherwise the data folder's lock keeps others out.
    var isShared: Bool { get }

    /// Whether the store refuses new ids beyond the limits of its options.
    var enforcesLimits: Bool { get }

    /// Where the store would be, if there is certainly none yet; nil if there is one or that cannot be told.
    var missingPath: String? { get }

    /// Looks at the store without opening it.
    var examiner: (any StoreExaminer)? { get }

    /// Looks at the store from outside, whether or not a server has it open; nil for a store on this machine.
    var inspector: (any StoreInspector)? { get }

    /// Looks at files that `StoreBackups` has written; nil for a store that writes none.
    var backupVerifier: (any BackupVerifier)? { get }

    /// Makes and changes the store's tables; nil for a store that does that by itself when it is opened.
    var migrator: (any SchemaMigrator)? { get }

    /// Opens the store, creating it if it is missing.
    ///
    /// - Parameters:
    ///   - directory: The data folder, locked unless the store is shared. A store that keeps its files there unlocks it when it is
    ///     closed.
    ///   - report: Told of what operators should know. Called from any thread; must return soon.
    func open(
        in directory: DataDirectory, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> any TokenStore

    /// Takes the store for what can only be done while no server has it open; nil if the store cannot do any of that.
    ///
    /// - Parameters:
    ///   - directory: The data folder.
    ///   - report: As for `open`.
    func takeOffline(
        in directory: DataDirectory, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> (any OfflineStore)?

    /// Begins to read all rows for another store, sealed or in the clear as they are.
    ///
    /// - Parameters:
    ///   - directory: The data folder, locked unless the store is shared.
    ///   - report: As for `open`.
    func copySource(
        in directory: DataDirectory, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> any CopySource

    /// Begins to fill the store with another one's rows; refused unless it is empty and no server uses it.
    ///
    /// The parameters are those of `copySource`.
    func copyTarget(
        in directory: DataDirectory, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> any CopyTarget
}
