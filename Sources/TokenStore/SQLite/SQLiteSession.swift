internal import Synchronization

/// One thread's read-only connection, and the writes it has gathered for the writer.
///
/// The reads between two calls of `flush` share one read transaction, which saves each of them the taking and giving back
/// of the log's read lock. A commit in between ends it, so that a read never misses a write that was answered before it.
final class SQLiteSession: TokenSession {
    private let connection: SQLiteConnection
    private let select: SQLiteStatement
    private let writer: SQLiteWriter
    private let deliver: @Sendable (@escaping @Sendable () -> Void) -> Void
    private let begin: SQLiteStatement
    private let end: SQLiteStatement
    private var gathered: [PendingWrite] = []
    /// The writer's count of commits before the open read transaction began; nil when none is open.
    private var snapshot: UInt64?

    init(
        path: String, writer: SQLiteWriter,
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(SQLiteError) {
        connection = try SQLiteConnection(path: path, mode: .readOnly)
        // A checkpoint by a reader could meet a commit of the writer's: see SQLiteTokenStore.
        try connection.execute("PRAGMA wal_autocheckpoint = 0")
        // Hardly anything makes a reader wait (sqlite.org/wal.html, section 8), and while it does its whole loop stands.
        try connection.execute("PRAGMA busy_timeout = 10")
        // Enough for some ten thousand tokens; what lies beyond is read from the system's cache.
        try connection.execute("PRAGMA cache_size = -8192")
        begin = try SQLiteStatement("BEGIN", on: connection)
        end = try SQLiteStatement("COMMIT", on: connection)
        select = try SQLiteStatement("SELECT value FROM token WHERE key = ?1", on: connection)
        self.writer = writer
        self.deliver = deliver
    }

    func fetch(_ id: [UInt8], appendingTo tokenInfo: inout [UInt8]) async throws(StoreError) -> Bool {
        do throws(SQLiteError) {
            try refreshSnapshot()
            return try select.withBinding(id, at: 1) { () throws(SQLiteError) -> Bool in
                guard try select.step() else { return false }
                select.appendBlob(at: 0, to: &tokenInfo)
                return true
            }
        } catch {
            throw .read(error)
        }
    }

    func store(_ tokenInfo: [UInt8], under id: [UInt8]) async throws(StoreError) {
        let outcome = await withCheckedContinuation { continuation in
            gathered.append(PendingWrite(write: Write(key: id, value: tokenInfo), continuation: continuation))
        }
        try outcome.get()
    }

    /// Opens a read transaction unless one is open that has seen every commit so far.
    private func refreshSnapshot() throws(SQLiteError) {
        // Read before the transaction begins: it may then see more than this says, never less.
        let commits = writer.commitCount.load(ordering: .acquiring)
        if snapshot == commits { return }
        closeSnapshot()
        try begin.run()
        snapshot = commits
    }

    private func closeSnapshot() {
        guard snapshot != nil else { return }
        snapshot = nil
        try? end.run()
        // Whatever kept it from ending: the next transaction must be able to begin.
        if connection.isInTransaction { try? connection.execute("ROLLBACK") }
    }

    func flush() {
        closeSnapshot()
        guard !gathered.isEmpty else { return }
        writer.submit(WriteBatch(writes: gathered, deliver: deliver))
        gathered = []
    }
}
