internal import Dispatch

/// Runs the work of one command, reading and writing JSON included, on a thread that nothing else needs.
///
/// Swift's own threads are as many as the machine has processors: two long commands would have all else wait that runs
/// there, signs of life for the service manager among it.
final class CommandThread: TaskExecutor {
    /// A serial queue, which the system gives a thread while it has work.
    private let queue = DispatchQueue(label: "command")

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { [self] in unsafe job.runSynchronously(on: asUnownedTaskExecutor()) }
    }
}
