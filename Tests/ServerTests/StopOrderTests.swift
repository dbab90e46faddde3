import Audit
import EventLoop
import Foundation
import Logging
import Settings
import Synchronization
import System
import TestSupport
import Testing
import TokenService

@testable import Server

struct StopOrderTests {
    @Test func `a stop finishes and records writes, then closes the audit log, and the store last`() async {
        // In a process of its own, as a server takes signals and limits for the whole process.
        await #expect(processExitsWith: .success) {
            let folder = try TemporaryDirectory()
            var settings = Settings()
            settings.loops = 1
            settings.audit.file = folder.path + "/audit.ndjson"
            settings.audit.keyFile = folder.path + "/key"
            (settings.access.mode, settings.access.headerName) = (.header, "Remote-User")
            try RunningKey(.random(), at: Int64(Date.now.timeIntervalSince1970)).install(settings.audit.keyFile)
            let logAtClose = Mutex("")
            let path = settings.audit.file
            let store = RemoteStore(
                timeLimit: nil, finishing: { $0.finishWrite("ann") },
                closing: { logAtClose.withLock { $0 = TextFile.contents(of: path) ?? "" } })
            let log = LogOutput(level: .critical, format: .text)
            let setup = try ProcessSetup(logger: log.logger)
            let listener = try ClientListener(
                listener: Listener(binding: SocketAddress.resolve(host: "127.0.0.1", port: 0)[0]),
                requiresProxyProtocol: false, tls: nil, clientAuthentication: .none)
            let server = try Server(
                settings, from: SettingsLoader(), log: log, setup, ClientListeners(all: [listener], tls: nil), store)
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
        let store: RemoteStore
        let listenerNames: [String] = []
        let warnings: [String] = []

        func serve(on loop: EventLoop) async {
            do {
                let port = server.listeners.all[0].listener.port
                let address = try SocketAddress.resolve(host: "127.0.0.1", port: port)[0]
                let descriptor = try address.connect(timeoutInSeconds: nil)
                let request = """
                    POST /token HTTP/1.1\r\nHost: a\r\nRemote-User: ann\r\nContent-Length: 12\r\n\
                    Content-Type: application/x-www-form-urlencoded\r\n\r\ntoken_info=1
                    """
                try BlockingIO.write(Array(request.utf8), to: descriptor.number)
                while try store.opened.asked.isEmpty { try await Task.sleep(for: .milliseconds(1)) }
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
