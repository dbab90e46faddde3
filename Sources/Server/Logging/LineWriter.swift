import Dispatch
import Glibc
import Synchronization
import System

/// Writes lines to standard output or to a file on a thread of its own, so that a slow reader or disk does not block a loop.
///
/// Any thread.
final class LineWriter: Sendable {
    private struct State {
        var destination: Destination
        /// The lines waiting to be written.
        var lines: [UInt8] = []
        /// Lines dropped since the last write.
        var dropped = 0
        var isClosed = false
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
            let flags = O_WRONLY | O_APPEND | O_NOCTTY | O_NONBLOCK
            let opened: FileDescriptor
            do {
                opened = try FileDescriptor(opening: path, flags)
            } catch {
                guard error.code == ENOENT else { throw error }
                opened = try FileDescriptor(openingOrCreating: path, flags, mode: 0o640)
            }
            number = opened.number
            file = consume opened
            // Remove O_NONBLOCK: the writing thread may block.
            guard fcntl(number, F_SETFL, O_APPEND) == 0 else { throw SystemError.last("fcntl") }
        }
    }

    /// How many bytes may wait to be written; lines beyond that are dropped and counted.
    private static let limit = 4 << 20

    private let state: Mutex<State>
    /// Signalled when there is something to write, and when the last lines are written.
    private let (work, finished) = (Semaphore(), Semaphore())
    /// Reports lost lines.
    private let failures: RateLimitedLog

    init(_ destination: Destination, failures: RateLimitedLog) {
        state = Mutex(State(destination: destination))
        self.failures = failures
        // Not when the first line comes: if there can be no further thread by then, the lines would be lost without a word.
        NamedThread.startOrExit("access log") { [self] in
            repeat { work.wait() } while write()
            finished.signal()
        }
    }

    /// Queues one line, which includes its newline.
    func append(_ line: [UInt8]) {
        let (isFirst, isFirstDrop) = state.withLock { state in
            guard state.lines.count + line.count <= Self.limit else {
                state.dropped += 1
                return (false, state.dropped == 1)
            }
            defer { state.lines.append(contentsOf: line) }
            return (state.lines.isEmpty, false)
        }
        if isFirst { work.signal() }
        if isFirstDrop {
            // Not on the caller's loop: standard error may be a file on the same disk, and a file always has room.
            DispatchQueue.global().async { [failures] in
                failures.log("lines of the access log are dropped, as its reader or its disk is too slow or hangs")
            }
        }
    }

    /// Sends all lines that are not being written yet to another destination.
    ///
    /// After logrotate has renamed the file, pass the same path opened again.
    func change(to destination: Destination) {
        state.withLock { $0.destination = destination }
    }

    /// Writes the remaining lines, and returns after a second at the latest, even if the reader does not accept them.
    func close() {
        state.withLock { $0.isClosed = true }
        work.signal()
        if !finished.wait(atMost: .seconds(1)) {
            failures.log("the last lines of the access log are lost, as its reader or its disk hangs")
        }
    }

    /// - Returns: Whether further lines may follow.
    private func write() -> Bool {
        let taken = state.withLock { state in
            defer { (state.lines, state.dropped) = ([], 0) }
            return state
        }
        do {
            try BlockingIO.write(taken.lines, to: taken.destination.number)
        } catch {
            // Requests are answered nevertheless.
            let place = taken.destination.path.isEmpty ? "standard output" : taken.destination.path
            failures.log("lines of the access log are lost, as \(place) cannot be written to: \(error)")
        }
        if taken.dropped > 0 {
            failures.log(
                "\(taken.dropped) lines of the access log were dropped, as its reader or its disk was too slow")
        }
        return !taken.isClosed
    }
}
