/// The store that the settings describe, while it is closed: how it is opened, and how its rows are copied.
///
/// Each is either a `FileStoreProvider` or a `SharedStoreProvider`.
///
/// Any thread.
package protocol StoreProvider: Sendable {
    var software: StoreSoftware { get }

    /// Opens the store, creating it if it is missing.
    ///
    /// - Parameter directory: The data folder, locked unless the store is shared. A store that keeps its files there unlocks it when
    ///   it is closed.
    func open(in directory: DataDirectory) throws(StoreOpenError) -> any TokenStore

    /// Begins to read all rows for another store; those of version 1.0 may also be in the clear.
    ///
    /// - Parameter directory: The data folder, locked unless the store is shared.
    func copySource(in directory: DataDirectory) throws(StoreOpenError) -> any CopySource

    /// Begins to fill the store with another one's rows; refused unless it is empty and no server uses it.
    ///
    /// - Parameter directory: As for `copySource`.
    func copyTarget(in directory: DataDirectory) throws(StoreOpenError) -> any CopyTarget
}

extension StoreProvider {
    /// Whether several processes may have the store open at the same time; otherwise the data folder's lock keeps others out.
    package var isShared: Bool { self is any SharedStoreProvider }
}

/// A store in files in the data folder, and what can be done with these files and with backups while it is closed.
package protocol FileStoreProvider: StoreProvider {
    /// Where the database is.
    var path: String { get }

    /// Whether there is certainly no database yet; false if that cannot be told.
    var isMissing: Bool { get }

    /// Names of the files in the data folder.
    var fileNames: [String] { get }

    /// The copy of a damaged WAL that is kept beside the store; nil if there is none.
    var damagedCopy: String? { get }

    /// Looks at the store without changing anything; nil when there is none.
    func examine() throws(StoreOpenError) -> StoreExamination?

    /// Whether a file begins like a backup that `StoreAdministrator.backUp` has written.
    func isBackup(_ path: String) -> Bool

    /// Checks that a backup could be restored: opens every row with the present key ring, without changing anything.
    ///
    /// - Parameters:
    ///   - path: The backup's path.
    ///   - progress: Counted in tokens.
    func verify(_ path: String, _ progress: (StoreProgress) -> Void) throws(StoreError) -> BackupVerification

    /// Replaces the store by a backup, without the users that were erased after the backup was made.
    ///
    /// - Parameters:
    ///   - directory: The data folder, locked.
    ///   - path: The backup's path.
    ///   - keepsSessions: Whether the backup's sessions become valid again, although some may have been ended since.
    ///   - lacksKeys: Whether tokens may be sealed with keys that the key ring lacks; otherwise such a backup is refused. Other rows
    ///     that do not open never are a reason to refuse it.
    ///   - progress: Counted in tokens.
    func restore(
        in directory: DataDirectory, from path: String, keepsSessions: Bool, lacksKeys: Bool,
        _ progress: (StoreProgress) -> Void
    ) throws(StoreError) -> StoreReplacement
}

/// A store in a database on other machines, which several servers share.
package protocol SharedStoreProvider: StoreProvider {
    /// Looks at the database from outside, whether or not a server uses it, and says what was found, good and bad.
    ///
    /// Takes seconds, and blocks its thread meanwhile.
    func inspect() -> StoreInspection

    /// Creates the tables and whatever else the servers need, unless they exist already; the servers themselves never do that.
    ///
    /// May be repeated.
    func migrate() throws(StoreOpenError) -> SchemaMigration
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

/// An operator's settings of a store, and who is told of its events.
package struct StoreOptions: Sendable {
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
    /// Whether a server opens the store, and not a command.
    ///
    /// Only a server deletes what has expired, and makes the indexes that this needs. If the database cannot be reached, it
    /// opens the store nevertheless, answers its clients meanwhile that it cannot serve them, and uses the database as soon as
    /// it is there.
    package var isServing = false
    /// Whether to make a key ring for a database that no server has used yet.
    ///
    /// Commands that only read do not: their key ring would become that of all servers.
    package var makesKeyRing = true
    /// Nil if nobody wants to see the tokens that a server's walk opens.
    package var inspector: (any TokenInspector)?
    /// Told of what operators should know.
    ///
    /// Called on any thread; must return soon.
    package var report: @Sendable (StoreEvent) -> Void = { _ in }

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
