import EventLoop
import Glibc
import Logging
import Synchronization
package import System

/// Reports the server's state to the service manager (sd_notify(3)); does nothing without one.
///
/// Any thread.
package final class ServiceNotifier: Sendable {
    /// A state or an event of the server.
    package enum Message: Equatable {
        /// The server has started, or has finished a reload.
        case ready
        /// The server reads its settings again; `ready` must follow.
        case reloading(since: MonotonicTime)
        /// The server is stopping, and ends within this time.
        case stopping(within: Duration)
        /// All loops are running.
        case watchdog

        /// Variables of sd_notify(3), each on a line.
        var text: String {
            switch self {
            case .ready: "READY=1"
            // The time lets the manager distinguish this reload from one that it requests later (Type=notify-reload).
            case .reloading(let start): "RELOADING=1\nMONOTONIC_USEC=\(start.nanoseconds / 1_000)"
            // Without this, a drain_timeout longer than TimeoutStopSec= would end with SIGKILL.
            case .stopping(let duration):
                "STOPPING=1\nEXTEND_TIMEOUT_USEC=\(Nanoseconds(duration).count / 1_000)"
            case .watchdog: "WATCHDOG=1"
            }
        }
    }

    /// Owns the descriptor in `target`; both are nil if the manager expects no messages or cannot be reached.
    private let socket: FileDescriptor?
    private let target: (number: Int32, address: SocketAddress)?
    private let logger: Logger
    private let hasFailed = Atomic(false)

    /// - Parameter name: `NOTIFY_SOCKET`, nil when it is not set: the path of a Unix socket, or `@` and a name in the abstract
    ///   namespace. `vsock:...`, with which a virtual machine reaches its host, is not supported.
    init(_ name: String?, logger: Logger) {
        self.logger = logger
        var socket: FileDescriptor?
        var target: (number: Int32, address: SocketAddress)?
        if let name {
            do throws(SystemError) {
                guard name.hasPrefix("/") || name.hasPrefix("@") else {
                    throw SystemError(call: "NOTIFY_SOCKET", code: EAFNOSUPPORT)
                }
                let address = try SocketAddress(name: name, call: "NOTIFY_SOCKET")
                let opened = try FileDescriptor(socket: AF_UNIX, SOCK_DGRAM.rawValue)
                // A service manager that has stopped reading must not block us.
                try opened.setTimeout(seconds: 1)
                target = (opened.number, address)
                socket = consume opened
            } catch {
                logger.warning("the service manager cannot be notified over \(name): \(error)")
            }
        }
        self.socket = socket
        self.target = target
    }

    /// Sends a message, for which it waits for a second at most; logs only the first error.
    package func send(_ message: Message) {
        guard let (number, address) = target else { return }
        let bytes = Array(message.text.utf8)
        let count = unsafe address.withPointer { address, length in
            // On a socket with a timeout for sending, a signal interrupts the call even if its handler has SA_RESTART
            // (signal(7)).
            retryingInterrupts {
                unsafe sendto(number, bytes, bytes.count, Int32(MSG_NOSIGNAL), address, length)
            }
        }
        guard count != bytes.count else { return }
        let error = SystemError.last("sendto")
        guard !hasFailed.exchange(true, ordering: .relaxed) else { return }
        logger.warning("the service manager could not be notified: \(error)")
    }
}

/// Sends the service manager watchdog messages as long as every loop runs (sd_watchdog_enabled(3)).
///
/// Before each message, every loop has to run a job. When a loop hangs, no message is sent, and the manager restarts the server.
struct Watchdog: Sendable {
    let loops: [EventLoop]
    /// The time without a message after which the manager restarts the server.
    let interval: Duration
    let notify: @Sendable () -> Void

    /// Runs until its task is cancelled.
    func run() async {
        while !Task.isCancelled {
            // All loops are asked at once, because each may be waiting for a slow disk.
            let jobs = loops.map { Task(executorPreference: $0) {} }
            for job in jobs { await job.value }
            notify()
            // sd_watchdog_enabled(3) recommends half of the interval, so that a late message does no harm.
            try? await Task.sleep(for: interval / 2)
        }
    }
}

/// The environment variables that a service manager, such as systemd, has set for this process.
///
/// The variables are those of sd_listen_fds(3), sd_notify(3) and sd_watchdog_enabled(3). They are read here rather than
/// through libsystemd, to avoid linking a library for a few lines.
struct ServiceEnvironment: Sendable {
    /// For `ServiceNotifier`; nil when the manager expects no messages.
    var notificationAddress: String?
    /// How often the manager expects a watchdog message; nil when it expects none.
    var watchdogInterval: Duration?
    /// Listening sockets to serve, in the order of their descriptors.
    var passedSockets: [PassedSocket] = []

    /// The descriptor of the first socket (sd_listen_fds(3), `SD_LISTEN_FDS_START`).
    private static let firstDescriptor: Int32 = 3

    private static let names = [
        "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
    ]

    /// Reads the variables and removes them, so that no other reader and no child process uses the sockets as well.
    ///
    /// Call it once, before other threads read the environment.
    static func take() throws(StartError) -> ServiceEnvironment {
        var variables: [String: String] = [:]
        for name in names {
            variables[name] = ProcessEnvironment.value(of: name)
            _ = unsafe unsetenv(name)
        }
        return try ServiceEnvironment(variables, processID: getpid())
    }

    /// - Parameters:
    ///   - variables: The environment.
    ///   - processID: This process. Sockets and the watchdog may be meant for another one, such as a shell that started
    ///     this process.
    init(_ variables: [String: String], processID: Int32) throws(StartError) {
        notificationAddress = variables["NOTIFY_SOCKET"].flatMap { $0.isEmpty ? nil : $0 }
        let watched = variables["WATCHDOG_PID"]
        if watched == nil || watched == String(processID), let microseconds = Int64(variables["WATCHDOG_USEC"] ?? ""),
            microseconds > 0
        {
            watchdogInterval = .microseconds(microseconds)
        }
        if variables["LISTEN_PID"] == String(processID) { passedSockets = try Self.sockets(variables) }
    }

    private static func sockets(_ variables: [String: String]) throws(StartError) -> [PassedSocket] {
        let text = variables["LISTEN_FDS"] ?? ""
        guard let count = Int32(text), (0...Int32(Int16.max)).contains(count) else {
            throw .passedSockets("LISTEN_FDS is \"\(text)\", which is not a number of sockets")
        }
        guard let joined = variables["LISTEN_FDNAMES"] else {
            return (0..<count).map { PassedSocket(descriptor: firstDescriptor + $0, name: "") }
        }
        let names = count == 0 ? [] : joined.split(separator: ":", omittingEmptySubsequences: false).map(String.init)
        guard names.count == Int(count) else {
            throw .passedSockets("LISTEN_FDS is \(count), but LISTEN_FDNAMES has \(names.count) names")
        }
        return zip(0..<count, names).map { PassedSocket(descriptor: firstDescriptor + $0, name: $1) }
    }
}

/// A listening socket that the service manager has opened for this process.
package struct PassedSocket: Hashable, Sendable, CustomStringConvertible {
    let descriptor: Int32
    /// `FileDescriptorName=` of the socket unit; empty if the manager passed no names.
    let name: String

    package var description: String { name.isEmpty ? "socket \(descriptor)" : "socket \(descriptor) (\(name))" }
}
