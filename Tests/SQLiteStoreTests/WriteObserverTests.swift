import StoreConformance
import Synchronization
import TestSupport
import Testing
import TokenStore

@testable import SQLiteStore

@Suite struct WriteObserverTests {
    @Test("an observer learns of a change of the retention, and of expiry before it is reported")
    func expiry() async throws {
        let folder = TemporaryDirectory()
        let data = folder.path + "/data"
        let recorder = WriteRecorder()
        let calls = Mutex<[String]>([])
        let store = try SQLiteTokenStore(at: data) {
            $0.report = { event in
                if case .expired = event { calls.withLock { $0 += recorder.take() } }
            }
        }
        defer { store.close() }
        #expect(store.seesAllWrites)
        store.report(writesTo: recorder)
        _ = await SQLiteAdministrator(store).store(["a", "b"].map { (Token(id: Array($0.utf8), info: [1]), 1) })
        store.change(Retention(afterWritten: .seconds(60)))
        try await eventually { calls.withLock { !$0.isEmpty } }
        let seen = calls.withLock(\.self)
        #expect(seen.filter { $0 != "expire" } == ["will a b", "did a b", "everything"] && seen.last == "expire")
    }

    @Test("the end of a session whose row does not open is reported as a change of everything")
    func unreadableSessions() {
        let recorder = WriteRecorder()
        recorder.willEnd(anyOf: [nil])
        recorder.didEnd(anyOf: [nil])
        #expect(recorder.take() == ["everything", "everything"])
    }

    @Test("the end of a session is reported as over only if it was announced, whatever fails in between")
    func failedEnds() throws {
        let folder = TemporaryDirectory()
        let store = try WriterHarness(folder.path + "/data")
        defer { store.database.close() }
        let recorder = WriteRecorder()
        store.state.observer = recorder
        var coder = RowCoder(store.state.sealing)
        let id = SessionID.random()
        let session = UserSession(id: id, user: [65], createdAt: 0, expiresAt: .max, lastUsedAt: 0)
        let row = try coder.row(of: session, coder.sessionKey(of: [1].span))
        #expect(throws: Never.self) { try store.write([.createSession(row, perUser: 1)])[0].get() }
        try store.perform {
            try $0.connection.execute(
                "CREATE TEMP TRIGGER fault BEFORE UPDATE ON main.store BEGIN SELECT RAISE(ABORT, 'a fault'); END")
        }
        _ = recorder.take()
        #expect(throws: StoreError.self) { try store.write([.endSession(id)])[0].get() }
        #expect(!recorder.take().contains { $0.hasPrefix("end") })
        try store.perform { try $0.connection.execute("DROP TRIGGER IF EXISTS temp.fault") }
        _ = recorder.take()
        guard case .ended(let ended?) = try store.write([.endSession(id)])[0].get() else {
            Issue.record("the session is still there")
            return
        }
        #expect(ended.user == [65])
        #expect(recorder.take() == ["end ?", "ended ?"])
    }
}
