internal import CLinux
internal import Glibc

/// Threads of the system's, with a name that top(1) and debuggers show.
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

    /// The same for a thread that the process cannot do without: it ends if there can be none, and whatever started it starts it
    /// again.
    package static func startOrExit(_ name: String, _ body: @escaping @Sendable () -> Void) {
        do throws(ThreadShortage) {
            try start(name, body)
        } catch {
            try? BlockingIO.write(Array("token-cache: \(error)\n".utf8), to: STDERR_FILENO)
            _exit(EXIT_FAILURE)
        }
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
