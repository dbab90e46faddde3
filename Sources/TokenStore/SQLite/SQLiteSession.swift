/// One thread's read-only connection, and the writes it has gathered for the writer.
final class SQLiteSession: TokenSession {
    private let select: SQLiteStatement
    private let writer: SQLiteWriter
    private let deliver: @Sendable (@escaping @Sendable () -> Void) -> Void
    private var gathered: [PendingWrite] = []

    init(
        path: String, writer: SQLiteWriter,
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(SQLiteError) {
        let connection = try SQLiteConnection(path: path, mode: .readOnly)
        // A checkpoint by a reader could meet a commit of the writer's: see SQLiteTokenStore.
        try connection.execute("PRAGMA wal_autocheckpoint = 0")
        // Readers wait only for a log that is being recovered, which nothing but a crash of SQLite itself can cause.
        try connection.execute("PRAGMA busy_timeout = 1000")
        select = try SQLiteStatement("SELECT value FROM token WHERE key = ?1", on: connection)
        self.writer = writer
        self.deliver = deliver
    }

    func fetch(_ id: [UInt8], appendingTo tokenInfo: inout [UInt8]) async throws(StoreError) -> Bool {
        do throws(SQLiteError) {
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
            gathered.append(PendingWrite(key: id, value: tokenInfo, continuation: continuation))
        }
        try outcome.get()
    }

    func flush() {
        guard !gathered.isEmpty else { return }
        writer.submit(WriteBatch(writes: gathered, deliver: deliver))
        gathered = []
    }
}
