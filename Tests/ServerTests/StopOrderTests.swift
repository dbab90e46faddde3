import Audit
import EventLoop
import Foundation
import Logging
import Settings
import Synchronization
import System
import TestSupport
import Testing

@testable import Server

struct StopOrderTests {
    @Test func `the store, whose lock keeps other processes out, is closed after the audit log`() async {
        // In a process of its own, as a server takes signals and limits for the whole process.
        await #expect(processExitsWith: .success) {
            let folder = try TemporaryDirectory()
            var settings = Settings()
            settings.loops = 1
            settings.audit.file = folder.path + "/audit.ndjson"
            settings.audit.keyFile = folder.path + "/key"
            try RunningKey(.random(), at: Int64(Date.now.timeIntervalSince1970)).install(settings.audit.keyFile)
            let logAtClose = Mutex("")
            let path = settings.audit.file
            let store = RemoteStore(timeLimit: nil) {
                logAtClose.withLock { $0 = TextFile.contents(of: path) ?? "" }
            }
            let log = LogOutput(level: .critical, format: .text)
            let setup = try ProcessSetup(logger: log.logger)
            let listener = try ClientListener(
                listener: Listener(binding: SocketAddress.resolve(host: "127.0.0.1", port: 0)[0]),
                requiresProxyProtocol: false, tls: nil, clientAuthentication: .none)
            let server = try Server(
                settings, from: SettingsLoader(), log: log, setup, ClientListeners(all: [listener], tls: nil), store)
            try await server.run(version: "test", beside: Stopping(server: server))
            let isClosed = logAtClose.withLock {
                $0.contains(#""action":"drain""#) && $0.contains(#""action":"close_log""#)
            }
            exit(isClosed ? EXIT_SUCCESS : EXIT_FAILURE)
        }
    }

    /// An administration that only stops the server.
    private struct Stopping: Administration {
        let server: Server
        let listenerNames: [String] = []
        let warnings: [String] = []

        func serve(on loop: EventLoop) async {
            server.drain("the test ends", by: .signal("SIGTERM"))
        }
    }
}
