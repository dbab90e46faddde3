internal import Glibc

/// What a service manager, such as systemd, has left for this process in the environment.
///
/// The variables are those of sd_listen_fds(3), sd_notify(3) and sd_watchdog_enabled(3). They are read here instead of by
/// libsystemd, which would be one more library to link for a few lines.
struct ServiceEnvironment: Sendable {
    /// Where messages go, see `NotificationSocket`; nil when nobody waits for any.
    var notificationAddress: String?
    /// A sign of life has to come at least this often; nil when none is waited for.
    var watchdogInterval: Duration?
    /// Listening sockets to serve, in the order of their numbers.
    var passedSockets: [PassedSocket] = []

    /// The number of the first socket (sd_listen_fds(3), `SD_LISTEN_FDS_START`).
    private static let firstDescriptor: Int32 = 3

    private static let names = [
        "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
    ]

    /// Reads the variables and removes them, so that no second reader takes the sockets for its own.
    ///
    /// Call it once, before other threads read the environment.
    static func take() throws(StartError) -> ServiceEnvironment {
        var variables: [String: String] = [:]
        for name in names {
            // Copied before it is removed.
            if let value = unsafe getenv(name) { variables[name] = unsafe String(cString: value) }
            _ = unsafe unsetenv(name)
        }
        return try ServiceEnvironment(variables, processID: getpid())
    }

    /// - Parameters:
    ///   - variables: The environment.
    ///   - processID: This process: sockets and the watchdog can be meant for another one, such as a shell before it.
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
            throw .passedSockets("LISTEN_FDS is \"\(text)\", which is no number of sockets")
        }
        guard let joined = variables["LISTEN_FDNAMES"] else {
            return (0..<count).map { PassedSocket(descriptor: firstDescriptor + $0, name: "") }
        }
        let names = count == 0 ? [] : joined.split(separator: ":", omittingEmptySubsequences: false).map(String.init)
        guard names.count == Int(count) else {
            throw .passedSockets("LISTEN_FDS is \(count), and LISTEN_FDNAMES has \(names.count) names")
        }
        return zip(0..<count, names).map { PassedSocket(descriptor: firstDescriptor + $0, name: $1) }
    }
}

/// A socket that the service manager has opened and listens on for us.
package struct PassedSocket: Hashable, Sendable, CustomStringConvertible {
    let descriptor: Int32
    /// `FileDescriptorName=` of the socket unit; empty without names.
    let name: String

    package var description: String { name.isEmpty ? "socket \(descriptor)" : "socket \(descriptor) (\(name))" }
}
