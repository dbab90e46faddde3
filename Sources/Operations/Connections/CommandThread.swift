internal import Dispatch

/// Runs the work of one command, including its JSON, on its own thread.
///
/// Swift has as many shared threads as the machine has processors. Two long commands could occupy all of them, and delay
/// everything else that runs there.
final class CommandThread: TaskExecutor {
    /// A serial queue, which has a thread while it has work.
    private let queue = DispatchQueue(label: "command")

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { [self] in unsafe job.runSynchronously(on: asUnownedTaskExecutor()) }
    }
}
