import Foundation
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct BackgroundSyncTests {
    private let folder: TemporaryDirectory
    private let opener: StoreOpener
    private let writer: WriterConnection

    init() throws {
        folder = try TemporaryDirectory()
        var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: folder.path))
        options.isSealed = false
        opener = StoreOpener(directory: folder.path, database: folder.path + "/tokens.db", options: options) { _ in }
        writer = try opener.open().writer
        for name in 1...9 { try write(UInt8(name), 0) }
        // By which the database is no small one.
        try write(10, 0, size: 8 << 20)
        _ = try writer.checkpoint()
    }

    private func key(_ name: UInt8) -> RowKey {
        var key = RowKey()
        key.bytes = [name]
        return key
    }

    /// Writes a row in a commit of its own; by itself it fills a page.
    private func write(_ name: UInt8, _ version: UInt8, size: Int = 1_500) throws {
        let row = Row(
            key: key(name), value: [UInt8](repeating: version, count: size), keyNumber: 0,
            times: RowTimes(writtenAt: 1, expiresAt: nil), id: [], index: ObjectIdentifier(writer)
        )
        for outcome in try writer.commit([row]) { try outcome.get() }
    }

    /// The rows' versions in the database's file alone; it has to be whole, as no page is made new here.
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

    @Test("what the WAL has is moved ahead, and the WAL goes on until the checkpoint")
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

    @Test("of a small database nothing is moved ahead")
    func small() throws {
        #expect(try writer.remove([key(10)]) == [true])
        try write(1, 1)
        try writer.prepareCheckpoint { Issue.record("nothing was moved") }
        #expect(writer.backgroundSync == nil)
        #expect(try writer.checkpoint(.restart) == .complete)
        #expect(try moved() == [1, 0, 0, 0, 0, 0, 0, 0, 0])
    }

    @Test("what something reads is left to the checkpoint")
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

    @Test("after a fault all is moved again, also what was moved ahead and has not reached the disk")
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
        // Closed last, as it takes the locks with it that SQLite has on the file.
        try file.close()
    }
}
