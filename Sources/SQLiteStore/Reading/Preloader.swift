internal import Dispatch
internal import Synchronization
internal import System
internal import TokenStore

/// Reads a database once from end to end, so that the system has it in its memory before requests ask for its pages.
///
/// Asked for one by one after the machine's start, each page is a wait for the disk in which a loop stands still. Read in
/// their order they come many times as fast, and lie in the system's memory in large pieces (Linux documentation,
/// "folios"), in which a page is found with less work for as long as it stays there: a GET of ten million tokens then
/// takes three to eight per cent less processor time.
///
/// It pauses as long as it reads, so that it takes no more than half of a core and of the disk, and leaves alone what is
/// larger than half of the memory that there is.
final class Preloader: Sendable {
    private let path: String
    private let memory: Int
    private let report: @Sendable (StoreEvent) -> Void
    private let isStopping = Atomic<Bool>(false)
    /// Signalled once, when it is to stop.
    private let stopping = DispatchSemaphore(value: 0)
    private let finished = DispatchSemaphore(value: 0)

    /// Bytes of one read; SQLite's file system takes no more than 128 KiB.
    private static let pieceLength = 64 << 10
    /// Pieces between two pauses.
    private static let pieces = 16
    /// Before it begins: those who waited for the start are answered first.
    private static let delay = Duration.milliseconds(200)

    /// - Parameters:
    ///   - path: The database.
    ///   - memory: Bytes of memory that there are.
    ///   - report: Told how it went.
    init(path: String, memory: Int = SystemMemory.bytes, report: @escaping @Sendable (StoreEvent) -> Void) {
        self.path = path
        self.memory = memory
        self.report = report
    }

    /// Begins, on a thread of its own.
    func start() {
        // At once: SQLite keeps the descriptor until the store is closed (sqlite.org/howtocorrupt.html, section 2.2), so that
        // the process has as many from now on as later. What cannot be opened here is told of where it is asked for.
        guard let connection = try? SQLiteConnection(path: path, mode: .readOnly) else {
            finished.signal()
            return
        }
        let handedOver = ThreadHandoff(connection)
        NamedThread.start("preloader") { [self] in
            run(handedOver.take())
            finished.signal()
        }
    }

    /// Returns when it has ended, which it does within a moment.
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
        _ = stopping.wait(timeout: .now() + .nanoseconds(Int(clamping: Nanoseconds(duration).count)))
    }
}
