import Audit
import EventLoop
import Foundation
import Logging
import Settings
import StoreConformance
import Synchronization
import System
import TestSupport
import Testing
import TokenService
import TokenStore

@testable import Server

struct StopOrderTests {
    @Test func `a stop finishes and records writes, then closes the audit log, and the store last`() async {
        // In a process of its own, as a server takes signals and limits for the whole process.
        await #expect(processExitsWith: .success) {
            let folder = TemporaryDirectory()
            var loaded = try SettingsLoader().loadWithOrigins()
            var settings = Settings()
            settings.audit.file = folder.path + "/audit.ndjson"
            settings.audit.keyFile = folder.path + "/key"
            (settings.access.mode, settings.access.headerName) = (.header, "Remote-User")
            try RunningKey(.random(), at: Int64(Date.now.timeIntervalSince1970)).install(settings.audit.keyFile)
            let logAtClose = Mutex("")
            let path = settings.audit.file
            let store = LateStore { logAtClose.withLock { $0 = TextFile.contents(of: path) ?? "" } }
            let log = LogOutput(level: .critical, format: .text)
            let setup = try ProcessSetup(logger: log.logger)
            let listener = try ClientListener(
                listener: Listener(binding: SocketAddress.resolve(host: "127.0.0.1", port: 0)[0]),
                requiresProxyProtocol: false, tls: nil, clientAuthentication: .none)
            loaded.settings = settings
            let server = try Server(
                loaded, from: SettingsLoader(), log: log, setup, ClientListeners(all: [listener], tls: nil), store)
            try await server.run(version: "test", beside: Stopping(server: server, store: store))
            let isClosed = logAtClose.withLock { log in
                ["store_token", "drain", "close_log"].allSatisfy { log.contains(#""action":"\#($0)""#) }
            }
            exit(isClosed ? EXIT_SUCCESS : EXIT_FAILURE)
        }
    }

    /// An administration that stops the server, after a client has asked for a write and left.
    private struct Stopping: Administration {
        let server: Server
        let store: LateStore
        let listenerNames: [String] = []
        let warnings: [String] = []

        func run(on loop: EventLoop) async {
            do {
                let port = server.listeners.all[0].listener.port
                let address = try SocketAddress.resolve(host: "127.0.0.1", port: port)[0]
                let descriptor = try address.connect(timeoutInSeconds: nil)
                let request = """
                    POST /token HTTP/1.1\r\nHost: a\r\nRemote-User: ann\r\nContent-Length: 12\r\n\
                    Content-Type: application/x-www-form-urlencoded\r\n\r\ntoken_info=1
                    """
                try BlockingIO.write(Array(request.utf8), to: descriptor.number)
                while !store.hasWrite { try await Task.sleep(for: .milliseconds(1)) }
                // Closing resets the connection: a client that only ended its side could still read.
                var reset = linger(l_onoff: 1, l_linger: 0)
                setsockopt(descriptor.number, SOL_SOCKET, SO_LINGER, &reset, socklen_t(MemoryLayout<linger>.size))
            } catch {
                fatalError("\(error)")
            }
            server.drain("the test ends", by: .signal("SIGTERM"))
        }
    }
}

/// A store whose write ends only when the server finishes the writes.
private final class LateStore: TokenStore {
    private let memory = MemoryStore(
        MemoryDisk(), options: StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: "")))
    private let handles = Mutex<[Handle]>([])
    private let closing: @Sendable () -> Void

    /// - Parameter closing: Called when the store is closed.
    init(closing: @escaping @Sendable () -> Void) {
        self.closing = closing
    }

    var software: StoreSoftware { memory.software }
    var summary: String { memory.summary }
    var seesAllWrites: Bool { false }
    var fault: StoreError? { nil }
    var metrics: StoreMetrics { memory.metrics }
    var administrator: any StoreAdministrator { memory.administrator }
    var hasWrite: Bool { handles.withLock { $0.contains { $0.hasWrite.load(ordering: .relaxed) } } }

    func change(_ retention: Retention) {}
    func report(writesTo observer: any WriteObserver) {}
    func finishWrites() { for handle in handles.withLock(\.self) { handle.finishWrite() } }
    func close() { closing() }

    func makeHandle(
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(StoreError) -> any StoreHandle {
        let made = Handle(deliver)
        handles.withLock { $0.append(made) }
        return made
    }

    /// Unchecked: the write is touched on the loop's thread alone.
    private final class Handle: TokensOnlyHandle, @unchecked Sendable {
        private let deliver: @Sendable (@escaping @Sendable () -> Void) -> Void
        private var write: Completion<TokenVersion>?
        let hasWrite = Atomic(false)

        init(_ deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void) {
            self.deliver = deliver
        }

        func fetch(
            _ id: [UInt8], upTo limit: Int, if session: SessionKey?, orLater makeCompletion: () -> Completion<Fetched>
        ) throws(StoreError) -> Fetched? { .nothing }

        func store(
            _ tokenInfo: [UInt8], under id: [UInt8], writtenAt: Int64?, if condition: WriteCondition,
            completion: Completion<TokenVersion>
        ) {
            write = completion
            hasWrite.store(true, ordering: .relaxed)
        }

        func flush() {}

        func finishWrite() {
            deliver { self.write.take()?(.success(TokenVersion(rawValue: 1))) }
        }
    }
}
