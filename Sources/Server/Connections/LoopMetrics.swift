package import EventLoop
internal import HTTP
package import Metrics
internal import System
package import TokenStore

/// What one loop counts.
///
/// Written on its thread, read on any. Its properties are constants that hold atomics, as those of a class that change would
/// be guarded at run time with each request.
package final class LoopMetrics: Sendable {
    package let requests = RequestCounts()
    /// Of GET: from the moment when the loop was told of the request to the end of the turn that answered it.
    ///
    /// By then its answer, or the first piece of a long one, has gone to the socket. All that are answered in one turn count
    /// with the time of the one that waited longest: one look at the clock serves all of them, and none took longer, but for
    /// those that waited in the queue of long work.
    package let getTime = Histogram.latency()
    /// Of POST that reached the store: from the beginning of the turn that read it to that of the turn in which its answer
    /// is sent, the commit in between.
    package let postTime = Histogram.latency()
    package let accepted = Counter()
    /// Connections that were told that there are too many.
    package let refused = Counter()
    /// Those beyond, which were closed at once.
    package let dropped = Counter()
    package let acceptFailures = Counter()
    package let handshakes = Counter()
    package let handshakeFailures = Counters<TLSError.Cause>()
    /// By GET whose answer was not in memory.
    package let storeReads = Counter()
    package let storeFailures = Counters<StoreError.Cause>()
    /// Of GET, as of the last look at the clock.
    private let measured = Counter()

    /// Counts an answer.
    @inline(__always)
    func note(_ response: borrowing Response, to method: Method) {
        requests.note(response, to: method)
    }

    /// Measures a request whose answer was waited for and is about to be counted.
    func noteWait(_ duration: Nanoseconds, of method: Method) {
        switch method {
        case .post: postTime.add(duration.count)
        case .get:
            getTime.add(duration.count)
            // Not with its turn as well.
            measured.add()
        default: break
        }
    }

    /// Measures the requests that were answered in a turn.
    func endTurn(began: MonotonicTime) {
        let answered = requests.gets.value
        let count = answered &- measured.value
        guard count > 0 else { return }
        measured.set(answered)
        getTime.add((MonotonicTime.now - began).count, count: count)
    }
}

/// A counter for each case.
package final class Counters<Key: CaseIterable & Equatable & Sendable>: Sendable {
    private let keys = Array(Key.allCases)
    private let counts: [Single]

    /// A class, for a counter cannot lie in an array.
    private final class Single: Sendable {
        let count = Counter()
    }

    init() {
        counts = Key.allCases.map { _ in Single() }
    }

    /// Adds one, on the thread that they belong to.
    func add(_ key: Key) {
        for (index, candidate) in keys.enumerated() where candidate == key { counts[index].count.add() }
    }

    package func value(_ key: Key) -> UInt64 {
        keys.firstIndex(of: key).map { counts[$0].count.value } ?? 0
    }
}

extension TLSError {
    /// Why handshakes fail, without the words of OpenSSL, which a client could make many of.
    package enum Cause: String, CaseIterable, Sendable {
        case plainRequest = "plain_request"
        case closed
        case timedOut = "timeout"
        case stopped
        case refused
        case system
    }

    var cause: Cause {
        switch self {
        case .plainRequest: .plainRequest
        case .closed: .closed
        case .timedOut: .timedOut
        case .stopped: .stopped
        case .refused: .refused
        case .system: .system
        }
    }
}
