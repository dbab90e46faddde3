/// The store that the settings describe, while it is closed: how it is opened, and what can be done with it until then.
///
/// Capabilities that only some stores have are nil for the others; see `StoreCapability`.
///
/// Any thread.
package protocol StoreProvider: Sendable {
    var software: StoreSoftware { get }

    /// Names of the files that the store keeps in the data folder; empty for a store that keeps none there.
    var fileNames: [String] { get }

    /// Whether several processes may have the store open at the same time; otherwise the data folder's lock keeps others out.
    var isShared: Bool { get }

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

/// The capabilities that only some stores have.
package enum StoreCapability: CaseIterable, Sendable {
    case backup, restore, keys, migration

    /// The error text for an operator whose store lacks the capability.
    package var absence: String {
        switch self {
        case .backup:
            """
            this store cannot be backed up by token-cache; use the tools of its database, for PostgreSQL pg_basebackup or \
            pgBackRest
            """
        case .restore:
            """
            this store cannot be restored by token-cache; use the tools of its database, for PostgreSQL pgBackRest or a copy \
            that pg_basebackup has made
            """
        case .keys: "this store has no key ring that token-cache can change"
        case .migration:
            """
            this store needs no migration. For a PostgreSQL database set \
            store.url, or name it with --url
            """
        }
    }
}

/// An operator's settings of a store.
package struct StoreOptions: Sendable {
    /// Whether rows are sealed.
    package var isSealed = true
    /// Where the key ring is.
    package var keyRing: KeyRingFile
    package var retention = Retention()
    /// Bytes of the database without its free pages, beyond which new ids are refused; nil for no limit.
    package var byteLimit: Int?

    /// Bytes of tokens that may wait to be written; further writes fail at once.
    package var queueLimit = 128 << 20
    /// How long one write to the disk may take; after that, writes that wait for it fail, and further ones fail at
    /// once.
    package var queueTime = Duration.seconds(10)
    /// Whether to use a damaged WAL, and thereby lose acknowledged writes.
    package var acceptsDamagedWAL = false
    /// Whether a store whose database cannot be reached is opened nevertheless, and used as soon as the database is there: for
    /// a server, which answers its clients meanwhile that it cannot serve them.
    package var waitsForDatabase = false

    package init(keyRing: KeyRingFile) {
        self.keyRing = keyRing
    }
}

/// The software that a store runs on.
package struct StoreSoftware: Hashable, Sendable {
    /// For example `SQLite`.
    package let name: String
    /// For example `3.40.1`.
    package let version: String

    package init(name: String, version: String) {
        self.name = name
        self.version = version
    }
}
