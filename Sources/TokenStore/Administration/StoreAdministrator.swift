/// What operators do with an open store, beside what clients do through handles.
///
/// Delays clients no longer than other clients do. Capabilities that only some stores have are nil for the others, or refused; see
/// `StoreCapability`.
///
/// Any thread; calls may block it.
package protocol StoreAdministrator: Sendable {
    var keyRing: (any KeyRingAdministrator)? { get }
    /// Reads and changes single tokens and sessions, as clients do.
    var handle: WaitingHandle { get }

    /// Reads some tokens, in no meaningful order.
    ///
    /// Successive pages contain each token once that is stored throughout.
    ///
    /// - Parameters:
    ///   - cursor: The `next` of the previous page; nil for the first page.
    ///   - limit: The maximum number of rows; fewer are returned when they are large.
    func page(after cursor: String?, limit: Int) async throws(StoreError) -> TokenPage

    /// Figures that are cheap to read; the number of tokens may be an estimate.
    func statistics() async throws(StoreError) -> StoreStatistics

    /// Walks over all rows in a round that begins now and makes no pauses, while the store is in use; see `WalkState`.
    ///
    /// If this is interrupted, the walk goes on with its usual pauses.
    ///
    /// - Parameter progress: Counted in rows.
    func walk(_ progress: @escaping @Sendable (StoreProgress) -> Void) async throws(StoreError) -> WalkReport

    /// Opens every row in a round of the walk, and checks the store's structure as far as that disturbs nobody.
    ///
    /// - Parameter progress: Counted in rows.
    func verify(_ progress: @escaping @Sendable (StoreProgress) -> Void) async throws(StoreError) -> StoreVerification

    /// Writes a copy of the store as of one moment, while the store is in use.
    ///
    /// The copy is written beside its final path, synced, and only then renamed to it, replacing the file
    /// there. It is sealed like the store, and does not contain the key ring.
    ///
    /// A backup that fails is recorded as the last one, unless it could not even begin, as with a mistyped path. For a
    /// backup that succeeds, the caller calls `recordBackup` when it has done everything else with it.
    ///
    /// - Parameters:
    ///   - path: An absolute path; this process writes it.
    ///   - checks: Whether to check the copy, as far as its structure goes.
    ///   - keys: The folder into which the key ring and the erasures are copied; nil for none.
    ///   - progress: Counted in bytes.
    func backUp(
        to path: String, checks: Bool, keys: String?, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) async throws(StoreError) -> StoreBackup

    /// Records how the last backup ended.
    func recordBackup(isSuccessful: Bool) async throws(StoreError)
}

/// A store on other machines is backed up there.
extension StoreAdministrator {
    package func backUp(
        to path: String, checks: Bool, keys: String?, _ progress: @escaping @Sendable (StoreProgress) -> Void
    ) throws(StoreError) -> StoreBackup { throw .refused(StoreCapability.backup.absence) }

    package func recordBackup(isSuccessful: Bool) throws(StoreError) {
        throw .refused(StoreCapability.backup.absence)
    }
}

/// A page of a listing.
package struct TokenPage: Sendable {
    /// Tokens as the store holds them, or why a row cannot be opened.
    package var entries: [(times: RowTimes, token: Result<Token, SealingError>)] = []
    /// The cursor with which the next page begins, which only this store can interpret; nil when there is none.
    package var next: String?

    package init() {}
}

/// The progress of a long operation.
package struct StoreProgress: Hashable, Sendable, Codable {
    package var done: Int
    package var total: Int

    package init(done: Int, total: Int) {
        self.done = done
        self.total = total
    }
}

/// What an operator may see of the walk.
package struct WalkStatus: Codable, Sendable {
    /// The round under way, with what it has found so far.
    package var present: WalkReport
    /// The last complete round; nil before the first one has ended.
    package var last: WalkReport?
    /// How far the present round is.
    package var progress: StoreProgress

    package init(_ state: WalkState, total: Int) {
        (present, last) = (state.present, state.last)
        let done = present.tokens + present.sessions
        progress = StoreProgress(done: done, total: max(done, total))
    }
}

/// Figures about a store; nil for those that a store does not know.
package struct StoreStatistics: Codable, Sendable {
    package var tokens: Int
    /// Whether `tokens` is an estimate; nil means no.
    package var tokensAreEstimated: Bool?
    /// Bytes of the database.
    package var databaseBytes: Int?
    /// Bytes of `databaseBytes` that are free.
    package var freeBytes: Int?
    package var walBytes: Int?
    /// True; tools of version 1.0 may read it.
    var isSealed = true
    /// The number of the key that seals.
    package var newestKey: Int
    /// For example `SQLite 3.40.1`.
    package var software: String
    /// The version of the tables.
    package var schemaVersion: Int?
    /// Rows that did not open when a client asked for them, since the start.
    package var unreadableReads = 0
    /// What the walk over all rows has found; nil if that is not known, and from a server before version 1.1.
    package var walk: WalkStatus?
    /// Where the store is: a folder, or a server.
    package var place: String

    package init(tokens: Int, newestKey: Int, software: String, place: String) {
        (self.tokens, self.newestKey, self.software, self.place) = (tokens, newestKey, software, place)
    }
}

/// The result of a verification.
package struct StoreVerification: Codable, Sendable {
    package var tokens = 0
    /// Rows that do not open, by what is wrong with them.
    package var unreadable: [String: Int] = [:]
    /// The names of the first rows that do not open; nil from a server before version 1.1.
    package var unreadableRows: [String]?
    /// Damage to the structure, in which case no row was opened, or otherwise to the set of rows; empty if there is
    /// none.
    package var damages: [String] = []
    /// Erasures that the store knows of, and that are in no file; nil from a server before version 1.1.
    package var missingErasures: Int?
    /// The copy of a damaged WAL beside the store, which may hold tokens that the store lacks; nil if there is none.
    package var damagedCopy: String?
    /// When the token that was stored last was stored, in seconds since 1970; nil if there is none.
    package var lastWrittenAt: Int64?

    /// Whether the store has every token, and every token opens.
    package var isSound = true

    package init() {}

    /// What a round of the walk has found.
    package init(_ report: WalkReport) {
        (tokens, lastWrittenAt, isSound) = (report.tokens, report.lastWrittenAt, report.isSound)
        (unreadable, unreadableRows, damages) = (report.unreadable, report.unreadableRows, report.damages)
    }
}

/// The result of a migration.
package struct SchemaMigration: Codable, Sendable {
    /// The version of the tables.
    package var version: Int
    /// Whether this migration created the tables.
    package var isNew: Bool

    package init(version: Int, isNew: Bool) {
        self.version = version
        self.isNew = isNew
    }
}
