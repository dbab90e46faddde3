import EventLoop
import Foundation
import Glibc
import Logging
import Settings
import Synchronization
import System
import TestSupport
import Testing

@testable import Server

@Suite struct ServiceEnvironmentTests {
    private func sockets(_ count: String, _ names: String? = nil, process: String = "7") throws -> [PassedSocket] {
        var variables = ["LISTEN_PID": process, "LISTEN_FDS": count]
        variables["LISTEN_FDNAMES"] = names
        return try ServiceEnvironment(variables, processID: 7).passedSockets
    }

    @Test("sockets are numbered from 3 and named in their order")
    func passedSockets() throws {
        #expect(try sockets("0").isEmpty)
        #expect(try sockets("0", "").isEmpty)
        #expect(try sockets("2").map(\.descriptor) == [3, 4])
        #expect(try sockets("2", "http:https").map(\.description) == ["socket 3 (http)", "socket 4 (https)"])
        #expect(try sockets("1", "").map(\.description) == ["socket 3"])
    }

    @Test("sockets that were meant for another process are ignored")
    func othersSockets() throws {
        #expect(try sockets("2", process: "8").isEmpty)
        #expect(try sockets("2", process: "").isEmpty)
        #expect(try sockets("many", process: "8").isEmpty)
    }

    @Test(
        "variables that contradict one another are told of",
        arguments: [("", nil), ("many", nil), ("-1", nil), ("40000", nil), ("2", "http"), ("1", "http:https")])
    func contradictions(count: String, names: String?) {
        #expect(throws: StartError.self) { try sockets(count, names) }
    }

    @Test("the variables are removed from the environment")
    func taken() async {
        // In a process of its own: threads of other tests read the environment, which must not change meanwhile (setenv(3)).
        await #expect(processExitsWith: .success) {
            setenv("LISTEN_PID", "1", 1)
            setenv("WATCHDOG_USEC", "30000000", 1)
            let (first, second) = (try ServiceEnvironment.take(), try ServiceEnvironment.take())
            #expect(first.watchdogInterval == .seconds(30) && second.watchdogInterval == nil)
            #expect(getenv("LISTEN_PID") == nil && getenv("WATCHDOG_USEC") == nil)
        }
    }

    @Test("the watchdog's interval applies when it is for this process or for any process")
    func watchdog() throws {
        func interval(_ variables: [String: String]) throws -> Duration? {
            try ServiceEnvironment(variables, processID: 7).watchdogInterval
        }
        #expect(try interval(["WATCHDOG_USEC": "1500000"]) == .milliseconds(1_500))
        #expect(try interval(["WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "7"]) == .milliseconds(1_500))
        #expect(try interval(["WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "8"]) == nil)
        for nothing in ["", "0", "-5", "soon"] { #expect(try interval(["WATCHDOG_USEC": nothing]) == nil) }
    }
}

@Suite struct ListenPlanTests {
    /// A plan as text: the addresses to bind, then each socket's descriptor with its address.
    private func plan(_ listen: [String], _ names: [String]) throws -> String {
        let sockets = names.enumerated().map { PassedSocket(descriptor: Int32(3 + $0), name: $1) }
        let plan = try ListenPlan(listen.compactMap(ListenAddress.init), sockets)
        let adopted = plan.adopted.map { "\($0.socket.descriptor)=\($0.address)" }
        return (plan.bound.map(\.description) + adopted).joined(separator: " ")
    }

    @Test("without sockets all addresses are bound")
    func nothingPassed() throws {
        #expect(try plan(["127.0.0.1:80", "https://[::]:443"], []) == "127.0.0.1:80 https://[::]:443")
    }

    @Test(
        "passed sockets take the place of the addresses of their kind",
        arguments: [
            ([""], "https://[::]:443 3=systemd"),
            (["token-cache.socket"], "https://[::]:443 3=systemd"),
            (["unknown", ""], "https://[::]:443 3=systemd 4=systemd"),
            (["http"], "https://[::]:443 3=systemd"),
            (["https"], "127.0.0.1:80 unix:/run/a 3=https://systemd"),
            (["https", "http"], "3=https://systemd 4=systemd"),
            (["proxy"], "127.0.0.1:80 unix:/run/a https://[::]:443 3=systemd?proxy-protocol=required"),
            (["https-proxy", "http"], "https://[::]:443 3=https://systemd?proxy-protocol=required 4=systemd"),
        ])
    func replaced(names: [String], expected: String) throws {
        #expect(try plan(["127.0.0.1:80", "unix:/run/a", "https://[::]:443"], names) == expected)
    }

    @Test(
        "with systemd in listen, the sockets are served beside the other addresses",
        arguments: [
            (["systemd", "127.0.0.1:80"], ["http"], "127.0.0.1:80 3=systemd"),
            (["systemd", "127.0.0.1:80"], ["", "https"], "127.0.0.1:80 3=systemd 4=https://systemd"),
            (["https://systemd"], ["a.socket"], "3=https://systemd"),
            (["https://systemd"], ["http"], "3=systemd"),
            (["systemd?proxy-protocol=required"], [""], "3=systemd?proxy-protocol=required"),
            (
                ["systemd?proxy-protocol=required&tls=terminated"], ["", "proxy"],
                "3=systemd?proxy-protocol=required&tls=terminated 4=systemd?proxy-protocol=required&tls=terminated"
            ),
            (
                ["a:1?proxy-protocol=required&tls=terminated"], ["proxy"],
                "3=systemd?proxy-protocol=required&tls=terminated"
            ),
            (
                ["a:1?proxy-protocol=required&tls=terminated", "b:1?proxy-protocol=required"], ["proxy"],
                "3=systemd?proxy-protocol=required"
            ),
        ])
    func asked(listen: [String], names: [String], expected: String) throws {
        #expect(try plan(listen, names) == expected)
    }

    @Test(
        "passed sockets ask for clients' certificates as the entries of their protocol do",
        arguments: [
            (["https://a:1?client-certificate=required"], ["https"], "3=https://systemd?client-certificate=required"),
            (["https://systemd?client-certificate=optional"], [""], "3=https://systemd?client-certificate=optional"),
            (
                ["https://systemd?client-certificate=optional"], ["https"],
                "3=https://systemd?client-certificate=optional"
            ),
            (["https://systemd?client-certificate=required", "https://a:1"], ["http"], "https://a:1 3=systemd"),
            (
                ["https://systemd", "https://a:1?client-certificate=required"], ["https"],
                "https://a:1?client-certificate=required 3=https://systemd"
            ),
            (
                ["https://a:1?client-certificate=optional", "https://b:1?client-certificate=required"], ["https"],
                "3=https://systemd?client-certificate=required"
            ),
            (
                ["https://a:1?client-certificate=required"], ["https-proxy"],
                "https://a:1?client-certificate=required "
                    + "3=https://systemd?proxy-protocol=required&client-certificate=required"
            ),
        ])
    func clientCertificates(listen: [String], names: [String], expected: String) throws {
        #expect(try plan(listen, names) == expected)
    }

    @Test("listeners ask for clients' certificates as their entries say, or all of them if no entry says anything")
    func clientAuthentication() {
        func found(_ listen: String...) -> [TLSClientAuthentication] {
            let listen = listen.compactMap(ListenAddress.init)
            return listen.map { TLSClientAuthentication(of: $0, among: listen) }
        }
        #expect(found("https://a:1", "https://a:2") == [.requiredByAuthorities, .requiredByAuthorities])
        #expect(
            found("https://a:1", "https://a:2?client-certificate=optional", "https://a:3?client-certificate=required")
                == [.none, .optional, .required])
    }

    @Test("unknown names and missing sockets are errors")
    func faults() {
        for name in ["htpp", "HTTP", "ssh"] {
            #expect(throws: StartError.self) { try plan(["127.0.0.1:80"], [name]) }
        }
        #expect(throws: StartError.self) { try plan(["systemd"], []) }
    }
}

@Suite struct ServiceNotifierTests {
    @Test(
        "messages are those of sd_notify(3)",
        arguments: [
            (ServiceNotifier.Message.ready, "READY=1"),
            (.reloading(since: MonotonicTime(nanoseconds: 5_000_999)), "RELOADING=1\nMONOTONIC_USEC=5000"),
            (.stopping(within: .milliseconds(1_500)), "STOPPING=1\nEXTEND_TIMEOUT_USEC=1500000"),
            (.watchdog, "WATCHDOG=1"),
        ])
    func texts(message: ServiceNotifier.Message, expected: String) {
        #expect(message.text == expected)
    }

    @Test("a missing or unusable notification socket is ignored")
    func nobodyListens() {
        let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
        let long = "/" + String(repeating: "a", count: 200)
        for address in [nil, "", "relative", "vsock:2:1234", "/nowhere/at/all", "@nobody", long] {
            ServiceNotifier(address, logger: logger).send(.ready)
        }
    }
}

@Suite struct WatchdogTests {
    @Test("watchdog messages are sent while every loop runs, and not while one hangs", .timeLimit(.minutes(30)))
    func signs() async throws {
        let loops = [try EventLoop(), try EventLoop()]
        for loop in loops { Thread { loop.run() }.start() }
        defer { for loop in loops { loop.stop() } }
        let count = Mutex(0)
        let watchdog = Watchdog(loops: loops, interval: .milliseconds(20)) { count.withLock { $0 += 1 } }
        let watching = Task { await watchdog.run() }
        while count.withLock(\.self) < 3 { try await Task.sleep(for: .milliseconds(5)) }

        let (hanging, release) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        loops[1].execute {
            hanging.signal()
            release.wait()
        }
        await Task.detached { hanging.wait() }.value
        let before = count.withLock(\.self)
        try await Task.sleep(for: .milliseconds(200))
        // One message may have been on its way.
        #expect(count.withLock(\.self) <= before + 1)

        release.signal()
        while count.withLock(\.self) < before + 3 { try await Task.sleep(for: .milliseconds(5)) }
        watching.cancel()
        await watching.value
    }
}
