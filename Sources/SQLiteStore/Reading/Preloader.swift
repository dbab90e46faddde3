internal import Synchronization
internal import System
internal import TokenStore

/// Reads a database once from beginning to end, so that it is in the page cache before requests need it.
///
/// After the machine's start, each page that a request needs is a wait for the disk, during which a loop stands still.
/// Sequential reads are many times as fast, and fill the page cache with large folios, in which the kernel finds pages
/// with less work: with ten million tokens, a GET then takes three to eight per cent less processor time.
///
/// After each step it pauses for as long as the step took, so that it takes at most half of a core and of the disk. It
/// skips databases larger than half of the memory.
final class Preloader: Sendable {
    private let path: String
    private let memory: Int
    private let report: @Sendable (StoreEvent) -> Void
    private let isStopping = Atomic<Bool>(false)
    /// Signalled once, to stop.
    private let stopping = Semaphore()
    private let finished = Semaphore()

    /// Bytes of one read; SQLite's file system takes no more than 128 KiB.
    private static let pieceLength = 64 << 10
    /// Pieces of a step, after which it pauses.
    private static let pieces = 16
    /// Time before it begins, in which clients that waited for the start are answered.
    private static let delay = Duration.milliseconds(200)

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
        guard let connection = try? SQLiteConnection(path: path, mode: .readOnly) else {
            finished.signal()
            return
        }
        let handedOver = ThreadHandoff(connection)
        do throws(ThreadShortage) {
            try NamedThread.start("preloader") { [self] in
                run(handedOver.take())
                finished.signal()
            }
        } catch {
            // Without the preloader, rows are read when clients ask for them.
            finished.signal()
        }
    }

    /// Stops the thread and waits until it has ended, which takes a moment.
    func stop() {
        isStopping.store(true, ordering: .relaxed)
        stopping.signal()
        finished.wait()
    }

    private func run(_ connection: SQLiteConnection) {
        pause(Self.delay)
        let size = connection.fileSize
        guard size <= memory / 2 else { return report(.notPreloaded(bytes: size, memory: memory)) }
        let began = ContinuousClock.now
        var piece = [UInt8](repeating: 0, count: Self.pieceLength)
        var (offset, stepBegan) = (0, began)
        while offset < size && !isStopping.load(ordering: .relaxed) {
            guard connection.readFile(at: offset, into: &piece) else { break }
            offset += piece.count
            if (offset / Self.pieceLength).isMultiple(of: Self.pieces) {
                pause(.now - stepBegan)
                stepBegan = .now
            }
        }
        if offset >= size { report(.preloaded(bytes: size, took: .now - began)) }
    }

    private func pause(_ duration: Duration) {
        stopping.wait(atMost: duration)
    }
}
