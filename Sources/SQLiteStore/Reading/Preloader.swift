import Dispatch
import Glibc
import Synchronization
import System
import TokenStore

/// Reads a database once from beginning to end, so that it is in the page cache before requests need it.
///
/// After the machine's start, each page that a request needs is a wait for the disk, during which a loop stands still.
/// Sequential reads are many times as fast, and fill the page cache with large folios, in which the kernel finds pages
/// with less work: with ten million tokens, a GET then takes three to eight per cent less processor time.
///
/// After each step it pauses for as long as the step took, at most `longestPause`, so that it usually takes at most
/// half of a core and of the disk. It skips databases larger than half of the memory.
final class Preloader: Sendable {
    private let path: String
    private let memory: Int
    private let report: @Sendable (StoreEvent) -> Void
    private let isStopping = Atomic<Bool>(false)
    private let queue = DispatchQueue(label: "preloader")

    /// Pieces of a step, after which it pauses.
    private static let pieces = 16
    private static let longestPause = Duration.milliseconds(200)

    /// - Parameters:
    ///   - path: The database.
    ///   - memory: Bytes of memory of this machine or container.
    ///   - report: Called with the result.
    init(path: String, memory: Int = SystemMemory.bytes, report: @escaping @Sendable (StoreEvent) -> Void) {
        self.path = path
        self.memory = memory
        self.report = report
    }

    /// Begins to read, on a thread of its own.
    func start() {
        // Opened at once: SQLite keeps the descriptor until the store is closed (sqlite.org/howtocorrupt.html, section
        // 2.2), so the number of descriptors is constant from now on. An error is reported by the reads of clients.
        guard let connection = try? SQLiteConnection(path: path, mode: .readOnly) else { return }
        let handedOver = ThreadHandoff(connection)
        queue.async { [self] in run(handedOver.take()) }
    }

    /// Stops the thread and waits until it has ended, which takes a moment.
    func stop() {
        isStopping.store(true, ordering: .relaxed)
        queue.sync {}
    }

    private func run(_ connection: SQLiteConnection) {
        let (size, began) = (connection.fileSize, ContinuousClock.now)
        guard size <= memory / 2 else { return report(.notPreloaded(bytes: size, memory: memory)) }
        var (count, stepBegan) = (0, began)
        let isWhole = connection.readThrough {
            count += 1
            if count.isMultiple(of: Self.pieces) {
                usleep(UInt32(min(.now - stepBegan, Self.longestPause) / .microseconds(1)))
                stepBegan = .now
            }
            return isStopping.load(ordering: .relaxed)
        }
        if isWhole { report(.preloaded(bytes: size, took: .now - began)) }
    }
}
