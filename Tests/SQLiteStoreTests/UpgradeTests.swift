import Foundation
import StoreConformance
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct UpgradeTests: EarlierVersionSuite {
    let folder: TemporaryDirectory
    let events = Events()

    init() throws {
        folder = try TemporaryDirectory()
        try FileManager.default.createDirectory(atPath: data, withIntermediateDirectories: true)
    }

    @Test(
        "a store of the third version becomes one of this in its place, and rekey binds its rows to their times",
        arguments: [true, false])
    func third(addsKey: Bool) async throws {
        let count = 1_000
        let first = try SQLiteTokenStore(at: data)
        let tokens = (0..<count).map { (Token(id: Array("id\($0)".utf8), info: Array("info\($0)".utf8)), Int64?(7)) }
        _ = await SQLiteAdministrator(first).store(tokens)
        first.close()
        try setBackToThirdVersion()
        let store = try SQLiteTokenStore(at: data, events: events)
        let administrator = SQLiteAdministrator(store)
        #expect(events.all == [.upgraded(path: path, from: 3, to: Schema.version)])
        #expect(try await administrator.keys().map(\.bindsTimes) == [false])
        var verification = try await administrator.verify { _ in }
        #expect(verification.isSound && verification.unbound == count)
        let handle = try await ConformanceHandle.open(store)
        try await handle.put("new", under: "id0")
        #expect(try await administrator.verify { _ in }.unbound == count - 1)
        if addsKey { #expect(try await administrator.addKey().bindsTimes) }
        let rekeying = try await administrator.rekey { _ in }
        #expect(rekeying.rekeyed == (addsKey ? count : count - 1) && rekeying.unreadable == 0)
        #expect(try await administrator.rekey { _ in }.rekeyed == 0)
        verification = try await administrator.verify { _ in }
        #expect(verification.isSound && verification.unbound == 0 && verification.tokens == count)
        if addsKey { try await administrator.retireKey(numbered: 1) }
        #expect(try await administrator.keys().map(\.bindsTimes) == [addsKey])
        #expect(try await handle.get("id7") == "info7")
        let times = try await administrator.page(after: nil, limit: count).entries.map(\.writtenAt)
        #expect(times.filter { $0 == 7 }.count == count - 1)
        store.close()
        let again = try SQLiteTokenStore(at: data, events: events)
        defer { again.close() }
        #expect(events.all.count == 1)
        #expect(try await SQLiteAdministrator(again).verify { _ in }.isSound)
    }

    @Test("a row of the third version's form does not open once its key is retired, not even as one of the new key's")
    func putBack() async throws {
        let first = try SQLiteTokenStore(at: data)
        _ = await SQLiteAdministrator(first).store([(Token(id: [65], info: [66]), 7)])
        first.close()
        try setBackToThirdVersion()
        let earlier = try SQLiteConnection(path: path, mode: .readWrite)
        let value = try earlier.text("SELECT hex(value) FROM token")
        let store = try SQLiteTokenStore(at: data)
        let administrator = SQLiteAdministrator(store)
        _ = try await administrator.addKey()
        _ = try await administrator.rekey { _ in }
        try await administrator.retireKey(numbered: 1)
        store.close()
        for (number, error) in [(2, SealingError.tampered(keyNumber: 2)), (1, .missingKey(number: 1))] {
            try SQLiteConnection(path: path, mode: .readWrite).execute(
                "UPDATE token SET value = x'\(value)', key_number = \(number)")
            let forged = try SQLiteTokenStore(at: data)
            await #expect(throws: StoreError.sealing(error)) { try await ConformanceHandle.open(forged).get("A") }
            forged.close()
        }
    }

    @Test("what the options refuse of the third version stays as it is, and a backup of it can be restored")
    func thirdElsewhere() async throws {
        let first = try SQLiteTokenStore(at: data)
        _ = await SQLiteAdministrator(first).store([(Token(id: [65], info: [66]), 7)])
        first.close()
        try setBackToThirdVersion()
        let backup = folder.path + "/backup"
        try SQLiteConnection(path: path, mode: .readWrite).execute("VACUUM INTO '\(backup)'")
        #expect(throws: SQLiteOpenError.sealed(path: path)) {
            try SQLiteTokenStore(at: data) { $0.isSealed = false }
        }
        #expect(try SQLiteConnection(path: path, mode: .readOnly).integer("PRAGMA user_version") == 3)
        let options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: data))
        let replacement = try OfflineSQLiteStore(directory: data, options: options) { _ in }
        #expect(try replacement.restore(backup) { _ in }.tokens == 1)
        #expect(try replacement.convert(isSealed: false) { _ in }.tokens == 1)
        #expect(try replacement.convert(isSealed: true) { _ in }.tokens == 1)
        _ = consume replacement
        let store = try SQLiteTokenStore(at: data)
        defer { store.close() }
        #expect(try await ConformanceHandle.open(store).get("A") == "B")
        let verification = try await SQLiteAdministrator(store).verify { _ in }
        #expect(verification.isSound && verification.unbound == 0)
    }
}
