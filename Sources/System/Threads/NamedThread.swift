internal import CLinux
internal import Glibc
internal import Synchronization

/// Threads of the system's, with a name that top(1) and debuggers show.
package enum NamedThread {
    private static let waiting = Mutex(Waiting())

    /// The threads that could not be started yet, in the order in which they were needed.
    private struct Waiting {
        var threads: [Start] = []
        /// The names of those that have come since the last look.
        var newcomers: [String] = []
    }

    /// Runs a function on a new thread, which ends with it.
    ///
    /// - Parameters:
    ///   - name: At most 15 bytes.
    ///   - body: What the thread does.
    package static func start(_ name: String, _ body: @escaping @Sendable () -> Void) throws(ThreadShortage) {
        try start(Start(name: name, body: body))
    }

    private static func start(_ start: Start) throws(ThreadShortage) {
        let start = unsafe Unmanaged.passRetained(start)
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

    /// The same, but if no thread can be started now, `startWaiting` starts it; returns at once in any case.
    ///
    /// For the threads of a server that already serves: a shortage of threads passes, and must not end it. Not by Dispatch, which
    /// would need a thread for that itself, and hold up the caller until there is one.
    package static func startWhenPossible(_ name: String, _ body: @escaping @Sendable () -> Void) {
        let new = Start(name: name, body: body)
        do throws(ThreadShortage) {
            try start(new)
        } catch {
            waiting.withLock { waiting in
                waiting.threads.append(new)
                waiting.newcomers.append(name)
            }
        }
    }

    /// What a call of `startWaiting` has found and done.
    package struct Attempt: Sendable {
        /// The names of the threads that have begun to wait since the last call.
        package let newcomers: [String]
        /// The names of those that were started.
        package let started: [String]
        /// How many still wait.
        package let waitingCount: Int
        /// Why no more could be started; nil if all were.
        package let shortage: ThreadShortage?

        package init(newcomers: [String], started: [String], waitingCount: Int, shortage: ThreadShortage?) {
            (self.newcomers, self.started) = (newcomers, started)
            (self.waitingCount, self.shortage) = (waitingCount, shortage)
        }
    }

    /// Starts the threads that wait, the earliest first, as far as possible; nil if there were none.
    ///
    /// A server calls this once a second, on a thread that it has.
    package static func startWaiting() -> Attempt? {
        let (threads, newcomers) = waiting.withLock { waiting in
            defer { waiting = Waiting() }
            return (waiting.threads, waiting.newcomers)
        }
        guard !threads.isEmpty else { return nil }
        var started = 0
        do throws(ThreadShortage) {
            for thread in threads {
                try start(thread)
                started += 1
            }
        } catch {
            waiting.withLock { $0.threads.insert(contentsOf: threads[started...], at: 0) }
            return Attempt(
                newcomers: newcomers, started: threads[..<started].map(\.name), waitingCount: threads.count - started,
                shortage: error)
        }
        return Attempt(newcomers: newcomers, started: threads.map(\.name), waitingCount: 0, shortage: nil)
    }

    private static func run(_ start: Start) {
        unsafe clinux_name_thread(start.name)
        start.body()
    }

    /// What a new thread is handed.
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

    package init(_ cause: SystemError) {
        self.cause = cause
    }

    package var description: String {
        """
        no thread can be started (\(cause)); raise the limit of processes and threads: TasksMax= in the unit, ulimit -u, or \
        that of the container
        """
    }
}
