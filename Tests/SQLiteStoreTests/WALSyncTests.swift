import Metrics
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

/// When the WAL is synced: with each commit, and before a checkpoint only if a sync is missing.
@Suite struct WALSyncTests {
    private let folder = TemporaryDirectory()
    private let opener: StoreOpener
    private let syncTime = Histogram.latency()

    init() throws {
        let options = StoreOptions(in: folder.path)
        opener = StoreOpener(directory: folder.path, database: folder.path + "/tokens.db", options: options)
    }

    private func open() throws -> WriterConnection {
        let writer = try opener.open().writer
        writer.connection.measureSyncs(into: syncTime)
        return writer
    }

    private func write(_ name: UInt8, with writer: WriterConnection) throws {
        for outcome in try writer.commit([Row(RowKey(bytes: [name]), [1, 2, 3])]) { try outcome.get() }
    }

    /// The syncs of the WAL since the last call.
    private func syncs(since before: inout UInt64) -> UInt64 {
        let now = syncTime.reading.counts.reduce(0, +)
        defer { before = now }
        return now - before
    }

    @Test func `a checkpoint does not sync again what its commits have synced`() throws {
        let writer = try open()
        _ = try writer.checkpoint()
        var before: UInt64 = 0
        _ = syncs(since: &before)
        try write(1, with: writer)
        // The head of the restarted WAL has a sync of its own (SQLite's wal.c, sqlite3WalFrames).
        #expect(syncs(since: &before) == 2)
        try write(2, with: writer)
        #expect(syncs(since: &before) == 1)
        #expect(try writer.checkpoint(.restart) == .complete)
        #expect(syncs(since: &before) == 0)
        try write(3, with: writer)
        #expect(syncs(since: &before) == 2)
        #expect(try writer.checkpoint(.truncate) == .complete)
        #expect(syncs(since: &before) == 0)
        try write(4, with: writer)
        #expect(syncs(since: &before) == 2)
    }

    @Test func `what another connection has left in the WAL is synced before it is checkpointed`() throws {
        let earlier = try open()
        try write(1, with: earlier)
        // As long as the first is open, closing the second does not checkpoint.
        let writer = try open()
        var before: UInt64 = 0
        _ = syncs(since: &before)
        #expect(try writer.checkpoint() == .complete)
        #expect(syncs(since: &before) == 1)
    }

    @Test func `a pragma whose commit fails has not succeeded, although it has returned its row`() throws {
        let connection = try SQLiteConnection(path: opener.database, mode: .readWriteCreate)
        // Stands for PRAGMA journal_mode, of which only a disk can make the commit fail.
        try connection.execute(
            """
            PRAGMA foreign_keys = ON; CREATE TABLE parent (id PRIMARY KEY);
            CREATE TABLE child (id REFERENCES parent DEFERRABLE INITIALLY DEFERRED)
            """)
        #expect(throws: SQLiteError.self) { try connection.text("INSERT INTO child VALUES ('a') RETURNING id") }
    }
}
