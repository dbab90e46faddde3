import Dispatch
import Glibc
import Synchronization

/// Watches the descriptor of a handle for a test, as a loop does for a server.
final class DescriptorPolling: Sendable {
    private let isOver = Atomic<Bool>(false)

    /// - Parameters:
    ///   - descriptor: Stays open as long as this object lives, and a tenth of a second longer.
    ///   - proceed: Called, once at a time, while the descriptor is readable.
    init(_ descriptor: Int32, proceed: @escaping @Sendable () async -> Void) {
        // A copy stays open although the original may be closed first.
        let copy = dup(descriptor)
        Thread.start { [weak self] in
            defer { close(copy) }
            while let isOver = self?.isOver.load(ordering: .relaxed), !isOver {
                var waiting = pollfd(fd: copy, events: Int16(POLLIN), revents: 0)
                guard poll(&waiting, 1, 50) > 0 else { continue }
                let end = DispatchSemaphore(value: 0)
                Task {
                    await proceed()
                    end.signal()
                }
                end.wait()
            }
        }
    }

    deinit {
        isOver.store(true, ordering: .relaxed)
    }

    private enum Thread {
        static func start(_ body: @escaping @Sendable () -> Void) {
            // Not a thread of Swift's pool, which must not wait.
            DispatchQueue(label: "polling").async(execute: body)
        }
    }
}
