internal import Dispatch
internal import EventLoop
internal import Glibc
internal import Synchronization
internal import System

/// Writes lines to standard output or to a file by a thread of its own, so that a slow reader or disk stops no loop.
///
/// Any thread.
final class LineWriter: Sendable {
    private struct State {
        /// What waits to be written: the last is what further lines are added to.
        var batches: [Batch]
        /// Of all batches together.
        var count = 0
        var dropped = 0
        var isRunning = false
        var isClosed = false
    }

    /// Lines of one destination.
    private struct Batch {
        let destination: Destination
        var lines: [UInt8] = []
    }

    /// Where lines go; a file that was opened is closed with the last reference.
    final class Destination: Sendable {
        /// Empty for standard output.
        let path: String
        fileprivate let number: Int32
        /// What closes it.
        private let file: FileDescriptor?

        /// Opens a file for appending, and makes it when it is not there.
        ///
        /// - Parameter path: Empty for standard output.
        init(_ path: String) throws(SystemError) {
            self.path = path
            guard !path.isEmpty else {
                number = STDOUT_FILENO
                file = nil
                return
            }
            // A pipe that nobody reads is an error at once: waiting for a reader, the start or a reload would never end.
            let flags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK
            var number = unsafe open(path, flags)
            // Not through a link that leads nowhere: whoever may write to the folder could have one lead to anywhere.
            if number < 0 && errno == ENOENT { number = unsafe open(path, flags | O_CREAT | O_EXCL, 0o640) }
            // One that has come in between, as logrotate makes them.
            if number < 0 && errno == EEXIST { number = unsafe open(path, flags) }
            guard number >= 0 else { throw SystemError.last("open") }
            self.number = number
            file = FileDescriptor(owning: number)
            // Writing has a thread of its own, which may wait.
            guard fcntl(number, F_SETFL, O_APPEND) == 0 else { throw SystemError.last("fcntl") }
        }
    }

    /// Lines that wait to be written are dropped beyond this many bytes, and counted.
    private static let limit = 4 << 20

    private let state: Mutex<State>
    private let available = DispatchSemaphore(value: 0)
    private let finished = DispatchSemaphore(value: 0)
    /// Told of lines that are lost.
    private let failures: RateLimitedLog

    init(_ destination: Destination, failures: RateLimitedLog) {
        state = Mutex(State(batches: [Batch(destination: destination)]))
        self.failures = failures
    }

    /// Takes one line with its end.
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

    /// Has all lines from now on go elsewhere; those that are there still go where they were meant to go.
    ///
    /// The same path opened again is how a file is left to who has renamed it.
    func change(to destination: Destination) {
        let starts = state.withLock { state in
            // A destination that has got no line yet gets none any more.
            if state.batches[state.batches.count - 1].lines.isEmpty { state.batches.removeLast() }
            state.batches.append(Batch(destination: destination))
            defer { state.isRunning = true }
            return !state.isRunning
        }
        if starts { start() }
        available.signal()
    }

    /// Writes what is left, unless its reader does not take it: a stop does not wait for that.
    func close() {
        let isRunning = state.withLock { state in
            state.isClosed = true
            return state.isRunning
        }
        guard isRunning else { return }
        available.signal()
        _ = finished.wait(timeout: .now() + 1)
    }

    private func start() {
        NamedThread.start("access log") { [self] in
            run()
            finished.signal()
        }
    }

    private func run() {
        while true {
            available.wait()
            let (batches, dropped, isClosed) = state.withLock { state in
                let taken = state.batches
                // What comes from now on goes to the last destination, if there is no further change.
                state.batches = taken.suffix(1).map { Batch(destination: $0.destination) }
                defer { (state.count, state.dropped) = (0, 0) }
                return (taken, state.dropped, state.isClosed)
            }
            for batch in batches { write(batch.lines, to: batch.destination) }
            if dropped > 0 {
                failures.note("\(dropped) lines of the access log were dropped, its reader or its disk is too slow")
            }
            if isClosed { return }
        }
    }

    private func write(_ bytes: [UInt8], to destination: Destination) {
        do throws(SystemError) {
            try BlockingIO.write(bytes, to: destination.number)
        } catch {
            // Requests are answered all the same. If standard output fails nobody reads it any more.
            guard !destination.path.isEmpty else { return }
            failures.note("lines of the access log are lost, \(destination.path) takes none: \(error)")
        }
    }
}
