package import EventLoop
import Glibc
import HTTP
package import JWT
package import Metrics
import Synchronization
import System
package import TokenService
package import TokenStore

/// The metrics of one loop.
///
/// Written on its thread, read on any. All properties are constants that hold atomics: variables of a class would be checked
/// for exclusive access at run time with each request.
package final class LoopMetrics: Sendable {
    let requests = RequestCounts()
    /// The time of GET requests, from the event that announced the request to the end of the turn that answered it.
    ///
    /// By then the answer, or the first piece of a long one, has been passed to the socket. All GETs of a turn are measured with
    /// one reading of the clock and count with the longest of their times. The wait in the queue of long work is not included. A GET
    /// whose answer was pending counts with the time of that wait.
    package let getTime = Histogram.latency()
    /// The time of POST requests that reached the store, from the turn that read the request to the turn that sends its answer.
    package let postTime = Histogram.latency()
    package let accepted = Counter()
    /// Connections beyond the limit that were answered with 503.
    package let refused = Counter()
    /// Connections far beyond the limit that were closed at once.
    package let dropped = Counter()
    package let acceptFailures = Counter()
    package let handshakes = Counter()
    package let handshakeFailures = Counters<TLSError.Cause>()
    /// Reads of the store, by GET requests whose answer was not cached.
    package let storeReads = Counter()
    package let storeFailures = Counters<StoreError.Cause>()
    /// Requests that were not served although they could be read.
    package let accessFailures = Counters<AccessFailure>()
    /// JWTs that were not accepted.
    package let tokenRejections = Counters<JWTRejection>()
    /// The GET requests that `getTime` has measured.
    private let measured = Counter()

    /// Measures a request whose answer was pending, once: in the turn in which it is counted.
    ///
    /// - Parameters:
    ///   - duration: The time of the wait; 0 if the answer came in the same turn.
    ///   - method: The request's.
    func noteWait(_ duration: Nanoseconds, of method: Method) {
        switch method {
        case .post: postTime.add(duration.count)
        case .get where duration.count > 0:
            getTime.add(duration.count)
            // Otherwise `endTurn` would measure it again.
            measured.add()
        case .get, .head, .put, .patch, .delete, .options, .trace, .connect, .other: break
        }
    }

    /// Measures the requests that were answered in a turn.
    ///
    /// - Parameter began: When the turn began.
    func endTurn(began: MonotonicTime) {
        let answered = requests.gets.value
        let count = answered &- measured.value
        guard count > 0 else { return }
        measured.set(answered)
        getTime.add((MonotonicTime.now - began).count, count: count)
    }
}

/// The open connections of all loops, and how many there may be: `limits.connections`, or fewer if the descriptors do not suffice.
///
/// Any thread.
final class ConnectionCount: Sendable {
    private let served = Atomic<Int>(0)
    /// Those that get 503, counted apart: while their clients read it, they must not take the place of others.
    private let refused = Atomic<Int>(0)
    /// `limits.connections`.
    private let setting: Atomic<Int>
    /// The connections for which there are descriptors.
    private let possible = Atomic<Int>(.max)

    /// How many connections beyond the limit receive a 503; any further ones are closed at once.
    private static let refusedLimit = 1_000
    /// How many of them there may be if `limits.connections` asks for more connections than there can be.
    private static let leastRefused = 64
    /// Descriptors that are left to the rest of the process.
    ///
    /// The access log, certificates, a database that is opened again and the administration need them at any time. So does the
    /// runtime: libdispatch reads about its threads in /proc, and ends the process when it has no descriptor for that.
    private static let otherDescriptors = 160
    /// Those that are left to it under a very low limit, where connections need most of them.
    private static let leastOtherDescriptors = 8

    init(limit: Int) {
        setting = Atomic(limit)
    }

    /// Takes over `limits.connections`; open connections stay.
    func setLimit(_ limit: Int) {
        setting.store(limit, ordering: .relaxed)
    }

    /// Finds out how many connections the descriptors allow; call it when everything that stays open is open.
    ///
    /// - Parameter awaited: Descriptors that are still to come: for tasks that accept at the same time, and for a database.
    /// - Throws: If they allow none.
    func lookAtDescriptors(awaited: Int) throws(SystemError) {
        let free = try DescriptorLimit.free()
        let others = min(Self.otherDescriptors + awaited, max(Self.leastOtherDescriptors, free / 4))
        possible.store(free - others, ordering: .relaxed)
        guard limit > 0 else { throw SystemError(call: "open", code: EMFILE) }
    }

    /// The most connections that are served; further ones are refused, unless others can make room for them.
    var limit: Int {
        let possible = possible.load(ordering: .relaxed)
        return min(setting.load(ordering: .relaxed), possible - min(Self.leastRefused, 1 + possible / 8))
    }

    /// A warning if there can be fewer connections than `limits.connections`; nil otherwise.
    var warning: String? {
        let (limit, setting) = (limit, setting.load(ordering: .relaxed))
        guard limit < setting else { return nil }
        return """
            the limit of open files, \(DescriptorLimit.current), is too low for limits.connections, \(setting): at most \(limit) \
            are served; raise it with ulimit -n or LimitNOFILE=
            """
    }

    /// Counts another connection, beyond the limit among those that get 503, unless there are so many that it is to be closed at
    /// once.
    ///
    /// - Returns: Whether it is served; nil if it was not counted.
    func add() -> Bool? {
        let (count, limit) = (served.add(1, ordering: .relaxed).newValue, limit)
        let open = count + refused.load(ordering: .relaxed)
        guard open <= min(limit + Self.refusedLimit, possible.load(ordering: .relaxed)) else {
            subtract()
            return nil
        }
        guard count > limit else { return true }
        subtract()
        refused.add(1, ordering: .relaxed)
        return false
    }

    /// Counts one of those that get 503 among those that are served, if there is room by now.
    func admit() -> Bool {
        guard served.add(1, ordering: .relaxed).newValue <= limit else {
            subtract()
            return false
        }
        subtract(isRefused: true)
        return true
    }

    /// - Parameter isRefused: Whether the connection counts among those that get 503.
    func subtract(isRefused: Bool = false) {
        if isRefused {
            refused.subtract(1, ordering: .relaxed)
        } else {
            served.subtract(1, ordering: .relaxed)
        }
    }
}
