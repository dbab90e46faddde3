package import EventLoop
import Glibc
package import Logging
import System

/// Prepares the process before the server opens anything: signals, memory, limits, and the environment from the service
/// manager.
package struct ProcessSetup: Sendable {
    /// What a service manager such as systemd passed in the environment.
    let service: ServiceEnvironment
    /// Listening sockets that the service manager has opened.
    package var passedSockets: [PassedSocket] { service.passedSockets }
    let notifier: ServiceNotifier
    let heapMemory: HeapMemory

    /// Changes the whole process; call it once, before other threads run.
    ///
    /// - Parameter logger: Receives warnings.
    package init(logger: Logger) throws(StartError) {
        Signal.catchBeforeServing()
        // When the log's reader has ended or its file has reached a size limit, the write fails, and the process goes on.
        _ = signal(SIGPIPE, SIG_IGN)
        _ = signal(SIGXFSZ, SIG_IGN)
        heapMemory = HeapMemory()
        DescriptorLimit.raise()
        service = try ServiceEnvironment.take()
        notifier = ServiceNotifier(service.notificationAddress, logger: logger)
    }
}

/// Whether the server can serve clients: read and store tokens, and accept requests.
package struct ServiceReadiness: Codable, Sendable {
    package let isReady: Bool
    /// Why the server is not ready; empty when it is.
    package let reasons: [String]

    package init(reasons: [String]) {
        isReady = reasons.isEmpty
        self.reasons = reasons
    }

    private enum CodingKeys: String, CodingKey {
        case isReady = "ready"
        case reasons
    }
}

/// Serves operators and their tools, separately from the clients' connections.
///
/// `Server` knows the administration only by this protocol, so that it does not depend on how the server is administered.
package protocol Administration: Sendable {
    /// The addresses it listens on, for the log: `http://127.0.0.1:9090`.
    var listenerNames: [String] { get }

    /// Warnings about these listeners for the operator, one sentence each; empty when there are none.
    var warnings: [String] { get }

    /// Answers requests until the loop is abandoned, and returns when every request is answered or abandoned.
    ///
    /// - Parameter loop: The calling task's loop, which serves nothing else.
    func run(on loop: EventLoop) async
}
