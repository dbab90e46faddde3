import Foundation
import StoreConformance
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct EarlierBackupTests: EarlierVersionSuite {
    let folder: TemporaryDirectory
    let events = Events()

    init() throws {
        folder = try TemporaryDirectory()
        try FileManager.default.createDirectory(atPath: data, withIntermediateDirectories: true)
    }

    @Test("a backup of the second version can be restored, and a store of it sealed")
    func replacements() async throws {
        try await secondVersion(100, isSealed: false)
        let backup = folder.path + "/backup"
        let connection = try SQLiteConnection(path: path, mode: .readWrite)
        try connection.execute("VACUUM INTO '\(backup)'")
        for _ in 0..<2 {
            #expect(
                try replacing { (store) throws(StoreError) in try store.convert(isSealed: true) { _ in } }.tokens == 100
            )
            let store = try SQLiteTokenStore(at: data)
            #expect(try await ConformanceHandle.open(store).get("id99") == "info99")
            #expect(try await SQLiteAdministrator(store).verify { _ in }.isSound)
            store.close()
            #expect(try replacing { (store) throws(StoreError) in try store.restore(backup) { _ in } }.tokens == 100)
            let restored = try SQLiteTokenStore(at: data) { $0.isSealed = false }
            #expect(try await ConformanceHandle.open(restored).get("id99") == "info99")
            #expect(try await SQLiteAdministrator(restored).verify { _ in }.isSound)
            restored.close()
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: data).allSatisfy { !$0.contains("new") })
        #expect(try SQLiteConnection(path: backup, mode: .readOnly).integer("PRAGMA user_version") == 2)
    }

    @Test("what the options refuse is refused before anything is converted")
    func refused() async throws {
        for isSealed in [true, false] {
            try await secondVersion(10, isSealed: isSealed)
            #expect(throws: isSealed ? SQLiteOpenError.sealed(path: path) : .notSealed(path: path)) {
                try SQLiteTokenStore(at: data, events: events) { $0.isSealed = !isSealed }
            }
            if isSealed {
                try FileManager.default.moveItem(atPath: data + "/keys", toPath: data + "/keys.away")
                #expect(throws: SQLiteOpenError.self) { try SQLiteTokenStore(at: data, events: events) }
            }
            let connection = try SQLiteConnection(path: path, mode: .readWrite)
            #expect(try connection.integer("PRAGMA user_version") == 2)
            try FileManager.default.removeItem(atPath: data)
            try FileManager.default.createDirectory(atPath: data, withIntermediateDirectories: true)
        }
        #expect(events.all.isEmpty)
    }

    @Test("what a restore has left that was cut off in a conversion goes with the next start")
    func leftovers() throws {
        for suffix in [".new", ".new-wal", ".new.rows", ".new.new", ".new.new-journal"] {
            #expect(FileManager.default.createFile(atPath: path + suffix, contents: Data("secret".utf8)))
        }
        try SQLiteTokenStore(at: data).close()
        #expect(try FileManager.default.contentsOfDirectory(atPath: data).allSatisfy { !$0.contains("new") })
    }
}
