internal import Dispatch
internal import Glibc

/// Runs an actor on a queue of its own, where it may block, unlike on the few threads of Swift's shared pool.
package final class BlockingExecutor: SerialExecutor {
    fileprivate let queue: DispatchQueue

    package init(label: String) {
        queue = DispatchQueue(label: label)
    }

    package func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { unsafe job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }

    /// Runs a closure, after what was handed over before.
    package func run(_ work: @escaping @Sendable () -> Void) { queue.async(execute: work) }

    package func checkIsolated() { dispatchPrecondition(condition: .onQueue(queue)) }
}

/// Watches a handle's descriptor, as a loop does for a server.
package final class DescriptorPolling {
    private let source: any DispatchSourceRead

    /// - Parameters:
    ///   - descriptor: May be closed before this object ends: a copy is watched.
    ///   - executor: Where `proceed` is called, while the descriptor is readable.
    package init(_ descriptor: Int32, on executor: BlockingExecutor, proceed: @escaping @Sendable () -> Void) {
        let copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        source = DispatchSource.makeReadSource(fileDescriptor: copy, queue: executor.queue)
        source.setEventHandler(handler: proceed)
        source.setCancelHandler { close(copy) }
        source.activate()
    }

    deinit {
        source.cancel()
    }
}
