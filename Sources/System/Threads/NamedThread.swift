internal import CLinux
internal import Glibc

/// Threads of the system's, with a name that top(1) and debuggers show.
package enum NamedThread {
    /// Runs a function on a new thread, which ends with it.
    ///
    /// - Parameters:
    ///   - name: At most 15 bytes.
    ///   - body: What the thread does.
    package static func start(_ name: String, _ body: @escaping @Sendable () -> Void) {
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
        precondition(code == 0, "the system has no memory or number for another thread")
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
