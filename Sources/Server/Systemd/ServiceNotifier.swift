internal import EventLoop
internal import Logging
internal import Synchronization
package import System

/// Tells the service manager how the server is getting on (sd_notify(3)); does nothing where none listens.
///
/// Any thread.
package final class ServiceNotifier: Sendable {
    /// What can be told.
    package enum Message: Equatable {
        /// It has yet to do something before it serves, and tells of itself again within this time.
        case starting(within: Duration)
        /// It serves, or serves with new settings.
        case ready
        /// It reads its settings again; `ready` has to follow.
        case reloading(since: MonotonicTime)
        /// It has begun to end, and will have ended after this time.
        case stopping(within: Duration)
        /// A line for `systemctl status`.
        case status(String)
        /// It is alive, and so is every loop.
        case watchdog

        /// Variables of sd_notify(3), each on a line.
        var text: String {
            switch self {
            case .starting(let duration): "EXTEND_TIMEOUT_USEC=\(Nanoseconds(duration).count / 1_000)"
            case .ready: "READY=1"
            // The moment lets the manager tell this reload from one that it asked for later (Type=notify-reload).
            case .reloading(let start): "RELOADING=1\nMONOTONIC_USEC=\(start.nanoseconds / 1_000)"
            // With a drain_timeout beyond TimeoutStopSec= it would be killed otherwise.
            case .stopping(let duration):
                "STOPPING=1\nEXTEND_TIMEOUT_USEC=\(Nanoseconds(duration).count / 1_000)"
            case .status(let line): "STATUS=" + line.replacing("\n", with: " ")
            case .watchdog: "WATCHDOG=1"
            }
        }
    }

    private let socket: NotificationSocket?
    private let logger: Logger
    private let hasFailed = Atomic(false)

    /// - Parameter address: `NOTIFY_SOCKET`; nil when it is not set.
    init(_ address: String?, logger: Logger) {
        self.logger = logger
        var socket: NotificationSocket?
        if let address {
            do throws(SystemError) {
                socket = try NotificationSocket(address)
            } catch {
                logger.warning("the service manager cannot be told anything over \(address): \(error)")
            }
        }
        self.socket = socket
    }

    /// Sends all of them at once; a fault is logged the first time.
    package func send(_ messages: Message...) {
        guard socket != nil else { return }
        do throws(SystemError) {
            try socket?.send(messages.map(\.text).joined(separator: "\n"))
        } catch {
            guard !hasFailed.exchange(true, ordering: .relaxed) else { return }
            logger.warning("the service manager could not be told something: \(error)")
        }
    }
}
