import StoreConformance
import Synchronization
import TestSupport
import Testing
import TokenStore

@testable import SQLiteStore

@Suite struct WriteObserverTests {
    /// Notes what it is told, in its order.
    private final class Recorder: WriteObserver {
        let calls = Mutex<[String]>([])

        func willWrite(_ ids: [[UInt8]]) { note("will", ids) }
        func willEnd(_ sessions: [SessionKey]) {}
        func didEnd(_ sessions: [SessionKey]) {}
        func didWrite(_ ids: [[UInt8]]) { note("did", ids) }
        func didChangeEverything() { note("everything", []) }

        private func note(_ name: String, _ ids: [[UInt8]]) {
            let names = ids.map { String(decoding: $0, as: UTF8.self) }
            calls.withLock { $0.append(([name] + names).joined(separator: " ")) }
        }

        func take() -> [String] {
            calls.withLock { calls in
                defer { calls = [] }
                return calls
            }
        }
    }

    @Test("an observer learns of every write, removal and change of the retention, before its outcome is told")
    func calls() async throws {
        let folder = try TemporaryDirectory()
        let store = try SQLiteTokenStore(at: folder.path + "/data")
        defer { store.close() }
        #expect(store.seesAllWrites)
        let recorder = Recorder()
        store.report(writesTo: recorder)
        try await ConformanceHandle.open(store).put("1", under: "a")
        #expect(recorder.take() == ["will a", "did a"])
        let administrator = SQLiteAdministrator(store)
        let tokens = ["b", "c"].map { Token(id: Array($0.utf8), info: [1]) }
        _ = await administrator.store(tokens.map { ($0, nil) })
        #expect(recorder.take() == ["will b c", "did b c"])
        _ = try await administrator.remove([Array("b".utf8), Array("missing".utf8)])
        #expect(recorder.take() == ["will b missing", "did b missing"])
        try await store.change(Retention(sinceWritten: .seconds(60)))
        #expect(recorder.take() == ["everything"])
    }
}
