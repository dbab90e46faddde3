internal import EventLoop
internal import Glibc
internal import Synchronization
internal import System

/// Writes lines to standard output or to a file on its own thread, so that a slow reader or disk does not block a loop.
///
/// Any thread.
final class LineWriter: Sendable {
    private struct State {
        /// The lines waiting to be written; new lines are added to the last batch.
        var batches: [Batch]
        /// The bytes in all batches together.
        var count = 0
        /// Lines dropped since the last write.
        var dropped = 0
        var isRunning = false
        var isClosed = false
    }

    /// Lines for one destination.
    private struct Batch {
        let destination: Destination
        var lines: [UInt8] = []
    }

    /// Standard output, or an open file, which is closed with the last reference.
    final class Destination: Sendable {
        /// Empty for standard output.
        let path: String
        fileprivate let number: Int32
        /// Owns the file's descriptor; nil for standard output.
        private let file: FileDescriptor?

        /// Opens a file for appending, and creates it if it does not exist.
        ///
        /// - Parameter path: Empty for standard output.
        init(_ path: String) throws(SystemError) {
            self.path = path
            guard !path.isEmpty else {
                number = STDOUT_FILENO
                file = nil
                return
            }
            // O_NONBLOCK makes opening a pipe without a reader fail at once; otherwise the start or reload would hang.
            let flags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK
            var number = Self.open(path, flags)
            // O_EXCL does not follow a dangling link, with which another user who may write to the folder could make us
            // create a file anywhere.
            if number < 0 && errno == ENOENT { number = Self.open(path, flags | O_CREAT | O_EXCL) }
            // Another process, such as logrotate, has created the file in between.
            if number < 0 && errno == EEXIST { number = Self.open(path, flags) }
            guard number >= 0 else { throw SystemError.last("open") }
            self.number = number
            file = FileDescriptor(owning: number)
            // Remove O_NONBLOCK: the writing thread may block.
            guard fcntl(number, F_SETFL, O_APPEND) == 0 else { throw SystemError.last("fcntl") }
        }

        private static func open(_ path: String, _ flags: Int32) -> Int32 {
            retryingInterrupts { unsafe Glibc.open(path, flags, 0o640) }
        }
    }

    /// How many bytes may wait to be written; lines beyond that are dropped and counted.
    private static let limit = 4 << 20

    private let state: Mutex<State>
    private let available = Semaphore()
    private let finished = Semaphore()
    /// Reports lost lines.
    private let failures: RateLimitedLog

    init(_ destination: Destination, failures: RateLimitedLog) {
        state = Mutex(State(batches: [Batch(destination: destination)]))
        self.failures = failures
    }

    /// Queues one line, which includes its newline.
    func append(_ line: [UInt8]) {
        let (isFirst, starts) = state.withLock { state in
            guard state.count + line.count <= Self.limit else {
                state.dropped += 1
                return (false, false)
            }
            state.batches[state.batches.count - 1].lines.append(contentsOf: line)
            state.count += line.count
            defer { state.isRunning = true }
            return (state.count == line.count, !state.isRunning)
        }
        if starts { start() }
        if isFirst { available.signal() }
    }

    /// Sends all further lines to another destination; lines already queued still go to the previous one.
    ///
    /// After logrotate has renamed the file, pass the same path opened again.
    func change(to destination: Destination) {
        let starts = state.withLock { state in
            // Drop the previous destination if no lines wait for it, so that its file is closed.
            if state.batches[state.batches.count - 1].lines.isEmpty { state.batches.removeLast() }
            state.batches.append(Batch(destination: destination))
            defer { state.isRunning = true }
            return !state.isRunning
        }
        if starts { start() }
        available.signal()
    }

    /// Writes the remaining lines, and returns after a second at the latest, even if the reader does not accept them.
    func close() {
        let isRunning = state.withLock { state in
            state.isClosed = true
            return state.isRunning
        }
        guard isRunning else { return }
        available.signal()
        finished.wait(atMost: .seconds(1))
    }

    private func start() {
        do throws(ThreadShortage) {
            try NamedThread.start("access log") { [self] in
                run()
                finished.signal()
            }
        } catch {
            // The next line tries it again; meanwhile they gather.
            state.withLock { $0.isRunning = false }
            failures.log("lines of the access log wait: \(error)")
        }
    }

    private func run() {
        while true {
            available.wait()
            let (batches, dropped, isClosed) = state.withLock { state in
                let taken = state.batches
                // Further lines go to the last destination, until the next change.
                state.batches = taken.suffix(1).map { Batch(destination: $0.destination) }
                defer { (state.count, state.dropped) = (0, 0) }
                return (taken, state.dropped, state.isClosed)
            }
            for batch in batches { write(batch.lines, to: batch.destination) }
            if dropped > 0 {
                failures.log("\(dropped) lines of the access log were dropped, its reader or its disk is too slow")
            }
            if isClosed { return }
        }
    }

    private func write(_ bytes: [UInt8], to destination: Destination) {
        do throws(SystemError) {
            try BlockingIO.write(bytes, to: destination.number)
        } catch {
            // Requests are answered all the same. An error on standard output means that its reader has ended.
            guard !destination.path.isEmpty else { return }
            failures.log("lines of the access log are lost, as \(destination.path) cannot be written to: \(error)")
        }
    }
}
