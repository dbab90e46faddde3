import CSQLite
import Foundation
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct FullDiskTests {
    private let folder = TemporaryDirectory()

    /// Checks the files often enough for a failure to be reported as over.
    private func lookForAWhile(_ store: WriterHarness) {
        for _ in 0..<3 { store.database.lookAfterFiles() }
    }

    private func allow(pages: Int, _ store: WriterHarness) throws {
        try store.perform { try $0.connection.execute("PRAGMA max_page_count = \(pages)") }
    }

    @Test("a disk stays full after operations that need no room, and after a token smaller than those that failed")
    func fullDisk() throws {
        let store = try WriterHarness(folder.path + "/data")
        try store.store("kept", bytes: 100)
        try allow(pages: 64, store)
        #expect(throws: StoreError.self) { try store.store("large", bytes: 500_000) }
        #expect(store.state.fault != nil)
        for _ in 0..<3 {
            try store.perform { writer in
                // What the beginning of a backup, a quiet checkpoint and a step of the walk do.
                _ = try writer.usedBytes()
                _ = try writer.checkpoint(.truncate)
                _ = try writer.apply(WalkChanges(), deletes: true, walk: "")
            }
            try store.store("small", bytes: 1_000)
            lookForAWhile(store)
            #expect(store.state.fault != nil)
            #expect(store.recoveries == 0)
        }
        // There is room again, and nobody writes.
        try allow(pages: 1_000_000, store)
        lookForAWhile(store)
        #expect(store.state.fault == nil)
        #expect(store.recoveries == 1)
        try store.store("large", bytes: 500_000)
    }

    @Test(
        "a probe writes and syncs as many bytes as it is asked for, and leaves only free pages",
        arguments: [0, 1_000_000]
    )
    func probe(_ bytes: Int) throws {
        let store = try WriterHarness(folder.path + "/data")
        try store.store("kept", bytes: 100)
        for _ in 0..<2 {
            let (written, used) = try store.perform { writer in
                _ = try writer.checkpoint(.truncate)
                let used = try writer.usedBytes()
                try writer.tryToWrite(bytes: bytes)
                return (writer.walSize, try writer.usedBytes() - used)
            }
            #expect(written > bytes && used == 0)
        }
        let tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'probe'"
        #expect(try store.perform { try $0.connection.integer(tables) } == 0)
    }

    @Test("a disk that fails now and then is reported once, and as recovered when nothing fails between two probes")
    func nowAndThen() throws {
        let store = try WriterHarness(folder.path + "/data")
        try allow(pages: 64, store)
        #expect(throws: StoreError.self) { try store.store("large", bytes: 500_000) }
        try allow(pages: 1_000_000, store)
        store.database.lookAfterFiles()
        store.failChange(SQLITE_FULL)
        // Writes succeed, and the failure is not over before it is certain.
        try store.store("larger", bytes: 600_000)
        store.database.lookAfterFiles()
        #expect(store.recoveries == 0 && store.state.fault != nil)
        store.database.lookAfterFiles()
        #expect(store.recoveries == 1 && store.state.fault == nil)
        #expect(store.events.all.count == 2)
    }
}
