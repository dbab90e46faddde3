internal import Glibc

/// The environment variables that a service manager, such as systemd, has set for this process.
///
/// The variables are those of sd_listen_fds(3), sd_notify(3) and sd_watchdog_enabled(3). They are read here rather than
/// through libsystemd, to avoid linking a library for a few lines.
struct ServiceEnvironment: Sendable {
    /// The address of the `NotificationSocket`; nil when the manager expects no messages.
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
            // unsetenv may invalidate the value: copy it first.
            if let value = unsafe getenv(name) { variables[name] = unsafe String(cString: value) }
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
