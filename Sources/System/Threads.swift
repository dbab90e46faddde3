import CLinux
package import Dispatch
import Glibc

/// System threads with names that top(1) and debuggers show.
package enum NamedThread {
    /// Runs a function on a new thread, which ends with it.
    ///
    /// - Parameters:
    ///   - name: At most 15 bytes.
    ///   - body: What the thread does.
    package static func start(_ name: String, _ body: @escaping @Sendable () -> Void) throws(ThreadShortage) {
        let start = unsafe Unmanaged.passRetained(Start(name: name, body: body))
        var attributes = pthread_attr_t()
        unsafe pthread_attr_init(&attributes)
        defer { unsafe pthread_attr_destroy(&attributes) }
        _ = unsafe pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
        var thread = pthread_t()
        let code = unsafe pthread_create(
            &thread, &attributes,
            { argument in
                guard let argument = unsafe argument else { return nil }
                NamedThread.run(unsafe Unmanaged<Start>.fromOpaque(argument).takeRetainedValue())
                return nil
            }, start.toOpaque()
        )
        guard code == 0 else {
            unsafe start.release()
            throw ThreadShortage(SystemError(call: "pthread_create", code: code))
        }
    }

    /// Starts a thread that the process cannot do without: if that fails, the process ends, and its supervisor starts it again.
    package static func startOrExit(_ name: String, _ body: @escaping @Sendable () -> Void) {
        do {
            try start(name, body)
        } catch {
            try? BlockingIO.write(Array("\(Journal.mark(LOG_CRIT))token-cache: \(error)\n".utf8), to: STDERR_FILENO)
            _exit(EXIT_FAILURE)
        }
    }

    private static func run(_ start: Start) {
        unsafe clinux_name_thread(start.name)
        start.body()
    }

    /// What a new thread receives.
    private final class Start: Sendable {
        let name: String
        let body: @Sendable () -> Void

        init(name: String, body: @escaping @Sendable () -> Void) {
            self.name = name
            self.body = body
        }
    }
}

/// No thread can be started: a limit of processes and threads is reached, or there is no memory for another one.
package struct ThreadShortage: Error, Hashable, CustomStringConvertible {
    private let cause: SystemError

    init(_ cause: SystemError) {
        self.cause = cause
    }

    package var description: String {
        """
        no thread can be started (\(cause)); raise the limit of processes and threads (TasksMax= in the unit, ulimit -u, or \
        that of the container) or of memory (ulimit -v)
        """
    }
}

/// A counting semaphore (sem_overview(7)) whose waits end by the monotonic clock.
///
/// Waits for Dispatch's semaphores end by the wall clock on Linux: if that is set back by an hour, they take an hour longer.
///
/// Any thread. `@unchecked Sendable`: the C library's functions may be called from any thread at the same time. Their argument is
/// valid for as long as this exists.
@safe package final class Semaphore: @unchecked Sendable {
    /// Allocated, as it must not move.
    private let semaphore: UnsafeMutablePointer<sem_t>

    /// - Parameter value: How many waits return without a signal.
    package init(value: UInt32 = 0) {
        unsafe semaphore = .allocate(capacity: 1)
        unsafe sem_init(semaphore, 0, value)
    }

    deinit {
        // No thread waits: a wait holds a reference.
        unsafe sem_destroy(semaphore)
        unsafe semaphore.deallocate()
    }

    /// Lets one wait return: one that has begun, or the next.
    package func signal() {
        let result = unsafe sem_post(semaphore)
        precondition(result == 0, "a semaphore was signalled more often than it can count")
    }

    /// Waits for a signal; an interrupted wait goes on.
    package func wait() {
        _ = retryingInterrupts { unsafe sem_wait(semaphore) }
    }

    /// Waits for a signal, or until a time has passed.
    ///
    /// - Returns: Whether a signal came.
    @discardableResult
    package func wait(atMost time: Duration) -> Bool {
        let end = (MonotonicTime.now + Nanoseconds(time)).nanoseconds
        var deadline = timespec(tv_sec: Int(end / 1_000_000_000), tv_nsec: Int(end % 1_000_000_000))
        return retryingInterrupts { unsafe sem_clockwait(semaphore, CLOCK_MONOTONIC, &deadline) } == 0
    }
}

/// The processor time of each thread of the process.
package enum ThreadTimes {
    /// Seconds in user and kernel mode by the thread's name.
    ///
    /// Threads with the same name are added up. Reads files.
    package static var now: [String: Double] {
        let ticks = Double(max(1, sysconf(Int32(_SC_CLK_TCK))))
        var times: [String: Double] = [:]
        for thread in Folder.names(in: "/proc/self/task") ?? [] {
            // proc(5): the name is in brackets and may contain any character; user and kernel time are fields 14 and 15.
            guard let text = TextFile.contents(of: "/proc/self/task/\(thread)/stat"),
                let start = text.firstIndex(of: "("), let end = text.lastIndex(of: ")")
            else { continue }
            let fields = text[text.index(after: end)...].split(separator: " ")
            guard fields.count > 12, let user = Double(fields[11]), let kernel = Double(fields[12]) else { continue }
            times[String(text[text.index(after: start)..<end]), default: 0] += (user + kernel) / ticks
        }
        return times
    }
}

/// Runs an actor or tasks on a queue of their own, where they may block, unlike on the few threads of Swift's shared pool.
package final class BlockingExecutor: SerialExecutor, TaskExecutor {
    package let queue: DispatchQueue

    package init(label: String) {
        queue = DispatchQueue(label: label)
    }

    package func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async {
            unsafe job.runSynchronously(
                isolatedTo: self.asUnownedSerialExecutor(), taskExecutor: self.asUnownedTaskExecutor())
        }
    }

    /// Runs a closure after the work that was handed over before.
    package func run(_ work: @escaping @Sendable () -> Void) { queue.async(execute: work) }

    package func checkIsolated() { dispatchPrecondition(condition: .onQueue(queue)) }
}

/// A value that one thread makes and another one takes.
///
/// Unchecked: only the thread that takes the value touches it.
package final class ThreadHandoff<Value>: @unchecked Sendable {
    private var value: Value?

    package init(_ value: Value) {
        self.value = value
    }

    /// Returns the value; to be called once.
    package func take() -> Value {
        guard let taken = value.take() else { preconditionFailure("a value is handed over once") }
        return taken
    }
}
