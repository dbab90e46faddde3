internal import EventLoop
internal import Logging
internal import Synchronization
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
        /// A line for `systemctl status`.
        case status(String)
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
                logger.warning("the service manager cannot be notified over \(address): \(error)")
            }
        }
        self.socket = socket
    }

    /// Sends the messages in one datagram; logs only the first error.
    package func send(_ messages: Message...) {
        guard socket != nil else { return }
        do throws(SystemError) {
            try socket?.send(messages.map(\.text).joined(separator: "\n"))
        } catch {
            guard !hasFailed.exchange(true, ordering: .relaxed) else { return }
            logger.warning("the service manager could not be notified: \(error)")
        }
    }
}
