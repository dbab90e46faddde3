import Dispatch
import Foundation
import StoreConformance
import Synchronization
import System
import TestSupport
import Testing
import TokenStore

@testable import Operations

@Suite struct StoreRequestTests {
    @Test func `JSON keys are snake_case when encoding and decoding`() throws {
        let request = ListTokens(after: "1", limit: 2, showsIDs: true, showsTokenInfos: false)
        let text = String(decoding: try OperationsJSON.encode(request), as: UTF8.self)
        #expect(text == #"{"after":"1","limit":2,"shows_ids":true,"shows_token_infos":false}"#)
        #expect(try OperationsJSON.decode(ListTokens.self, from: Data(text.utf8)).showsIDs)
    }

    @Test func `commands run at the same time, however few processors there are`() async {
        let barrier = Barrier(of: 8)
        let threads = (0..<8).map { _ in BlockingExecutor(label: "command") }
        let tasks = threads.map { thread in Task(executorPreference: thread) { barrier.waitForAll() } }
        for task in tasks { await task.value }
    }

    @Test func `a command gives up a server of which it hears nothing`() throws {
        let folder = TemporaryDirectory()
        let listener = try FileDescriptor(socket: AF_UNIX, SOCK_STREAM.rawValue)
        try SocketAddress(name: ControlSocketAddress.path(in: folder.path), call: "bind").bind(listener)
        try #require(listen(listener.number, 1) == 0)
        let client = ServerClient(in: folder.path, timeoutInSeconds: 1, outlastsWork: true)
        let failure = #expect(throws: ServerClient.Failure.self) { _ = try client.perform(ListKeys()) }
        #expect(failure.map { "\($0)" }?.hasPrefix("no answer came") == true)
    }
}

/// The answers to operators from a store without optional capabilities.
struct StoreCapabilityTests {
    private let store = AuditedStore(
        MemoryStore(
            MemoryDisk(), options: StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: ""))
        ).administrator, nil)

    @Test func `a request for a capability that the store lacks is refused with the reason`() async {
        let requests: [(any StoreRequest, StoreCapability)] = [
            (BackUpStore(path: "/backup"), .backup), (ListKeys(), .keys), (AddKey(), .keys),
            (RetireKey(number: 1), .keys),
        ]
        for (request, capability) in requests {
            await #expect(throws: StoreError.refused(capability.absence)) { _ = try await request.answer(store) }
        }
    }
}

/// A barrier: blocks each thread until all have arrived.
private final class Barrier: Sendable {
    private let gate = DispatchSemaphore(value: 0)
    private let missing: Mutex<Int>

    init(of count: Int) {
        missing = Mutex(count)
    }

    func waitForAll() {
        let isLast = missing.withLock { missing in
            missing -= 1
            return missing == 0
        }
        if isLast { gate.signal() }
        gate.wait()
        // Releases the next thread.
        gate.signal()
    }
}
