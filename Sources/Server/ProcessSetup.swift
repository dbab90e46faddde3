internal import Glibc
package import Logging
internal import System

/// Prepares the process before the server opens anything: signals, memory, limits, and the environment from the service
/// manager.
package struct ProcessSetup: Sendable {
    /// What a service manager such as systemd passed in the environment.
    let service: ServiceEnvironment
    /// Listening sockets that the service manager has opened.
    package var passedSockets: [PassedSocket] { service.passedSockets }
    package let notifier: ServiceNotifier
    let heapMemory: HeapMemory
    /// How many files the process may have open.
    let descriptorLimit: Int

    /// Changes the whole process; call it once, before other threads run.
    ///
    /// - Parameters:
    ///   - connectionLimit: `limits.connections`; a limit of open files that is too low for it causes a warning.
    ///   - logger: Receives warnings.
    package init(connectionLimit: Int, logger: Logger) throws(StartError) {
        Signal.endBeforeServing()
        // When the log's reader has ended or its file has reached a size limit, the write fails, and the process goes on.
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
