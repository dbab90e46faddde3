internal import Glibc
package import Logging
internal import System

/// Prepares the process before the server opens anything: signals, memory, limits, and what its service manager left for it.
package struct ProcessSetup: Sendable {
    /// What a service manager such as systemd passed in the environment.
    let service: ServiceEnvironment
    /// Sockets that it listens on for us.
    package var passedSockets: [PassedSocket] { service.passedSockets }
    package let notifier: ServiceNotifier
    let heapMemory: HeapMemory
    /// How many files the process may have open.
    let descriptorLimit: Int

    /// Changes the whole process; call it once, before other threads run.
    ///
    /// - Parameters:
    ///   - connectionLimit: `limits.connections`, which a low limit of open files makes unreachable.
    ///   - logger: Receives warnings.
    package init(connectionLimit: Int, logger: Logger) throws(StartError) {
        // When the reader of the log goes away, or its file may not grow, that write fails; the process goes on.
        _ = signal(SIGPIPE, SIG_IGN)
        _ = signal(SIGXFSZ, SIG_IGN)
        heapMemory = HeapMemory()
        CoreDumps.turnOff()
        descriptorLimit = DescriptorLimit.raise()
        if let warning = DescriptorLimit.warning(forConnections: connectionLimit) { logger.warning("\(warning)") }
        service = try ServiceEnvironment.take()
        notifier = ServiceNotifier(service.notificationAddress, logger: logger)
    }
}
