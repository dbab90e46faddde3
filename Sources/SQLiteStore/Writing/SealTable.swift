internal import Synchronization
internal import TokenStore

/// The table `seal`, which stores an upper bound of how often each key has sealed; see SealCounts.
///
/// Used on its connection's thread.
struct SealTable {
    let seals: SealCounts
    private let update: SQLiteStatement
    /// The counted keys, as of `version` of `seals`.
    private var keys: [Key] = []
    private var version: UInt64 = 0

    private struct Key {
        let count: SealCount
        /// The number in the table; 0 if there is none.
        var stored: Int64
        /// The number that the open transaction writes.
        var written: Int64
        /// The count when the table was read: the row of a key that has not sealed since is not written.
        let loaded: Int64
    }

    /// - Parameter seals: Holds at least what the table says.
    init(_ connection: SQLiteConnection, _ seals: SealCounts) throws(SQLiteError) {
        self.seals = seals
        update = try SQLiteStatement(
            """
            INSERT INTO seal (key_number, seals) VALUES (?1, ?2)
            ON CONFLICT (key_number) DO UPDATE SET seals = excluded.seals
            """,
            on: connection
        )
        let stored = try Schema.seals(of: connection)
        let current = seals.version.load(ordering: .acquiring)
        keys = seals.all.map { count in
            let stored = stored[count.keyNumber] ?? 0
            return Key(count: count, stored: stored, written: stored, loaded: min(count.value, stored))
        }
        version = current
    }

    /// Stores a larger number, in the open transaction, where a count comes near the stored one.
    ///
    /// Usually this only compares two numbers for each key.
    mutating func reserve() throws(SQLiteError) {
        refresh()
        for index in keys.indices {
            let (key, taken) = (keys[index], keys[index].count.value)
            // Half a step is left for rows that are already sealed and wait for a commit.
            guard taken > key.loaded, taken > key.stored - SealCounts.step / 2, key.stored < SealCounts.limit else {
                continue
            }
            try write(min(taken + SealCounts.step, SealCounts.limit), at: index)
        }
    }

    /// Stores the exact counts, in the open transaction.
    mutating func storeExactly() throws(SQLiteError) {
        refresh()
        for index in keys.indices where keys[index].count.value != keys[index].stored {
            try write(keys[index].count.value, at: index)
        }
    }

    /// Whether a stored number differs from its key's count.
    var isAhead: Bool { keys.contains { $0.stored != $0.count.value } }

    /// The transaction was committed.
    mutating func noteCommit() {
        for index in keys.indices { keys[index].stored = keys[index].written }
    }

    /// The transaction was rolled back.
    mutating func noteRollback() {
        for index in keys.indices { keys[index].written = keys[index].stored }
    }

    private mutating func write(_ seals: Int64, at index: Int) throws(SQLiteError) {
        try update.bind(Int64(keys[index].count.keyNumber), at: 1)
        try update.bind(seals, at: 2)
        try update.run()
        keys[index].written = seals
    }

    /// Adds the keys that `seals` has counted for the first time since the last call.
    private mutating func refresh() {
        let current = seals.version.load(ordering: .acquiring)
        guard current != version else { return }
        for count in seals.all where !keys.contains(where: { $0.count === count }) {
            keys.append(Key(count: count, stored: 0, written: 0, loaded: 0))
        }
        version = current
    }
}
