import Foundation
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct BackgroundSyncTests {
    private let folder = TemporaryDirectory()
    private let opener: StoreOpener
    private let writer: WriterConnection

    init() throws {
        let options = StoreOptions(in: folder.path)
        opener = StoreOpener(directory: folder.path, database: folder.path + "/tokens.db", options: options)
        writer = try opener.open().writer
        for name in 1...9 { try write(UInt8(name), 0) }
        // With this row the database is not small.
        try write(10, 0, size: 8 << 20)
        _ = try writer.checkpoint()
    }

    /// Writes a row that fills a page, in a commit of its own.
    private func write(_ name: UInt8, _ version: UInt8, size: Int = 1_500) throws {
        let row = Row(RowKey(bytes: [name]), [UInt8](repeating: version, count: size))
        for outcome in try writer.commit([row]) { try outcome.get() }
    }

    /// The rows' versions in the database's file alone, which is sound without the WAL because no page is added here.
    private func moved() throws -> [UInt8] {
        let connection = try SQLiteConnection(path: opener.database, mode: .immutable)
        #expect(try connection.text("PRAGMA integrity_check") == "ok")
        let select = try SQLiteStatement(
            "SELECT value FROM token WHERE length(value) = 1500 ORDER BY key", on: connection)
        var versions: [UInt8] = []
        while try select.step() { versions.append(select.blob(at: 0)[0]) }
        return versions
    }

    /// Prepares a checkpoint, and waits for its sync.
    private func prepare() async throws {
        try await withCheckedThrowingContinuation { continuation in
            do {
                try writer.prepareCheckpoint { continuation.resume() }
            } catch {
                continuation.resume(throwing: error)
            }
        }
    }

    @Test("the WAL's content is copied ahead, and the WAL grows on until the checkpoint")
    func moving() async throws {
        try write(1, 1)
        try write(2, 1)
        #expect(try moved() == [0, 0, 0, 0, 0, 0, 0, 0, 0])
        try await prepare()
        #expect(try moved() == [1, 1, 0, 0, 0, 0, 0, 0, 0])
        #expect(writer.backgroundSync?.isSynchronizing == false)
        let size = writer.walSize
        try write(4, 1)
        #expect(writer.walSize > size)
        try await prepare()
        #expect(try moved() == [1, 1, 0, 1, 0, 0, 0, 0, 0])
        try write(1, 3)
        #expect(try writer.checkpoint(.restart) == .complete)
        #expect(try moved() == [3, 1, 0, 1, 0, 0, 0, 0, 0])
        try write(5, 1)
        #expect(writer.walSize < size)
    }

    @Test("nothing of a small database is copied ahead")
    func small() throws {
        #expect(try writer.remove([RowKey(bytes: [10])]) == [true])
        try write(1, 1)
        try writer.prepareCheckpoint { Issue.record("something was copied") }
        #expect(writer.backgroundSync == nil)
        #expect(try writer.checkpoint(.restart) == .complete)
        #expect(try moved() == [1, 0, 0, 0, 0, 0, 0, 0, 0])
    }

    @Test("pages that a reader holds up are left to the checkpoint")
    func read() async throws {
        try write(1, 1)
        let reader = try SQLiteConnection(path: opener.database, mode: .readOnly)
        try reader.execute("BEGIN; SELECT 1 FROM store")
        try write(2, 1)
        try await prepare()
        #expect(try moved() == [1, 0, 0, 0, 0, 0, 0, 0, 0])
        try reader.execute("COMMIT")
        #expect(try writer.checkpoint(.restart) == .complete)
        #expect(try moved() == [1, 1, 0, 0, 0, 0, 0, 0, 0])
    }

    @Test("after a fault everything is copied again, even what was copied ahead but has not reached the disk")
    func settling() async throws {
        try write(1, 1)
        try write(2, 1)
        let before = try Data(contentsOf: URL(filePath: opener.database))
        try await prepare()
        #expect(try moved() == [1, 1, 0, 0, 0, 0, 0, 0, 0])
        let file = try FileHandle(forWritingTo: URL(filePath: opener.database))
        try file.write(contentsOf: before)
        #expect(try moved() == [0, 0, 0, 0, 0, 0, 0, 0, 0])
        try opener.settle(writer)
        #expect(try moved() == [1, 1, 0, 0, 0, 0, 0, 0, 0])
        // Closed last, because closing it releases SQLite's locks on the file.
        try file.close()
    }
}
