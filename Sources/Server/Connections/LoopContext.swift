package import EventLoop
import Glibc
import HTTP
import Logging
package import Metrics
import Settings
import Synchronization
import System
import TokenService
import TokenStore

/// Everything that the connections of one loop share.
///
/// Belongs to that loop's thread, except for `connectionCount`.
package final class LoopContext: @unchecked Sendable {
    // Unchecked: handed to its loop once, before the loop runs; afterwards only code on the loop uses it.

    let loop: EventLoop
    /// The settings for connections and requests that begin from now on.
    private(set) var connectionSettings: ConnectionSettings
    private let makeSettings: (Settings, AccessLog?) -> ConnectionSettings
    private let handle: any StoreHandle
    /// Nil for a store that has nothing to be watched, and before the loop runs.
    private var storeWatch: DescriptorWatch?
    /// Nil without an audit log.
    private let trail: AuditTrail?
    private let failures: RateLimitedLog
    /// Requests that would be redirected again and again, because of their proxies.
    let redirectLoops: RateLimitedLog
    /// Shared by all loops.
    package let bufferBudget: BufferBudget
    let handshakes: TLSHandshakes
    let metrics: LoopMetrics
    private let logger: Logger
    private var buffers = BufferPool()
    /// The pair that was returned last and is taken next.
    ///
    /// It is kept apart from the others, as a property of a class is read and written without a check at run time if nothing is
    /// called in between.
    private var latestBuffers: BufferPool.Pair?
    private var encoder = ResponseEncoder(unixTime: LoopContext.unixTime)
    private var requestIDs = RequestIDs()
    /// Open connections of this loop, including those that are being handed to it.
    ///
    /// Any thread.
    let connectionCount = Atomic<Int>(0)
    /// The connections of all loops.
    private let totalCount: ConnectionCount
    /// The turn in which connections were last closed for new ones, and how many of those places are still unused.
    private var (displacedIn, displaced) = (MonotonicTime.never, 0)
    /// The caller of `waitForConnections`, resumed when the last connection ends.
    private var connectionsWaiter: CheckedContinuation<Void, Never>?

    init(
        settings: Settings, store: any TokenStore, answers: AnswerCache?, access: AccessResources,
        accessLog: AccessLog?, bufferBudget: BufferBudget, totalCount: ConnectionCount, failures: RateLimitedLog,
        logger: Logger
    ) throws {
        let loop = try EventLoop()
        let metrics = LoopMetrics()
        self.metrics = metrics
        let handle = try store.makeHandle { work in loop.execute(work) }
        self.loop = loop
        self.handle = handle
        let trail = access.audit.map {
            AuditTrail($0, settings.audit.events, isRequired: settings.audit.isRequired) { loop.execute($0) }
        }
        self.trail = trail
        self.failures = failures
        redirectLoops = RateLimitedLog(logger, .info)
        self.bufferBudget = bufferBudget
        handshakes = TLSHandshakes(bufferBudget)
        self.totalCount = totalCount
        self.logger = logger
        // Apart from the store's failures, which nobody can crowd out of the log this way.
        let refusals = RateLimitedLog(logger, .warning)
        makeSettings = { settings, accessLog in
            let service = TokenService(
                paths: settings.paths, readsJSON: settings.readsJSON, handle: handle,
                answers: answers,
                report: { error, requestID in
                    metrics.storeFailures.add(error.cause)
                    // The store itself reports when writes begin to fail and when they work again.
                    if !error.isReportedByStore {
                        failures.log("the store failed, the client was told so: \(error)", requestID: requestID)
                    }
                },
                noteRead: { metrics.storeReads.add() }
            )
            let router = access.router(settings, service, trail, metrics, logger) { secret, departures in
                FacebookCallbacks(
                    secret: { secret.content }, departures, store.administrator, publicHost: settings.https.publicHost,
                    report: { refusals.log($0, requestID: $1) }, execute: { loop.execute($0) })
            }
            return ConnectionSettings(settings, router: router, accessLog: accessLog)
        }
        connectionSettings = makeSettings(settings, accessLog)
        if let descriptor = handle.descriptor {
            loop.execute { [self] in watchStore(descriptor) }
        }
        // The writes of one turn share a commit, which begins only now.
        loop.endOfTurn = {
            handle.flush()
            // After the store, as a write that it refuses has an event too.
            trail?.flush()
            metrics.endTurn(began: loop.lastWait)
        }
    }

    /// How long to wait before another attempt to watch the store's handle.
    private static let watchPause = Nanoseconds(.seconds(1))

    /// Calls the store's handle whenever it has something to do.
    private func watchStore(_ descriptor: Int32) {
        do {
            storeWatch = try DescriptorWatch(descriptor, on: loop) { [handle] in handle.proceed() }
        } catch {
            // The kernel has no memory. Until it has, requests that need the store are answered with its failure after their
            // time limit.
            failures.log("the store's connections cannot be watched for now: \(error)")
            Task(executorPreference: loop) { [self] in
                await loop.sleep(until: loop.now + Self.watchPause)
                watchStore(descriptor)
            }
        }
    }

    // MARK: - Settings

    /// Applies settings to connections and requests that begin from now on.
    func apply(_ settings: Settings, accessLog: AccessLog?) {
        trail?.change(settings.audit.events, isRequired: settings.audit.isRequired)
        connectionSettings = makeSettings(settings, accessLog)
    }

    // MARK: - Connections

    /// Serves a connection from its first byte to its last; call `expectConnection` before.
    ///
    /// - Parameters:
    ///   - descriptor: A connected socket that this call owns.
    ///   - client: Its address.
    ///   - listener: The listener that accepted the connection.
    ///   - isRefused: Whether there are too many connections, so that this one is answered with 503 and closed.
    func take(_ descriptor: Int32, from client: SocketAddress, through listener: ClientListener, isRefused: Bool) {
        if isRefused { metrics.refused.add() }
        let stream: TCPStream
        do {
            stream = try TCPStream(FileDescriptor(owning: descriptor), on: loop)
        } catch {
            // The client has disconnected already.
            return noteEnd(isRefused: isRefused)
        }
        let peer = connectionSettings.https.peer(
            address: client.endpoint?.address, port: listener.listener.port)
        let connection = Connection(stream, from: peer, through: listener.number, on: self)
        ConnectionDriver(connection, isRefused: isRefused, on: self).start(through: listener)
    }

    /// What came of making room for a new connection.
    enum Room {
        /// There is, and the connection counts.
        case found
        /// Connections were told to end; most are gone in the next turns.
        case soon
        /// There is no connection that could be closed.
        case none
    }

    /// Closes connections with a trait in favour of a new one if there is no room for it.
    func makeRoom(_ trait: WaitTraits) -> Room {
        if totalCount.admit() { return .found }
        if displacedIn != loop.now || displaced <= 0 { (displacedIn, displaced) = (loop.now, loop.displace(trait)) }
        defer { displaced -= 1 }
        return totalCount.admit() ? .found : displaced > 0 ? .soon : .none
    }

    /// Counts a connection that is about to be served here.
    ///
    /// Any thread.
    func expectConnection() {
        connectionCount.add(1, ordering: .relaxed)
    }

    /// Counts a connection that has ended.
    func noteEnd(isRefused: Bool) {
        totalCount.subtract(isRefused: isRefused)
        if connectionCount.subtract(1, ordering: .relaxed).newValue == 0 { connectionsWaiter.take()?.resume() }
    }

    /// Returns when all connections have ended; no further connection may begin after the call.
    func waitForConnections() async {
        if connectionCount.load(ordering: .relaxed) == 0 { return }
        await withCheckedContinuation { connectionsWaiter = $0 }
    }

    // MARK: - Shared by the connections

    /// Empty buffers to receive into and to send from.
    func takeBuffers() -> BufferPool.Pair {
        latestBuffers.take() ?? buffers.take()
    }

    /// Returns empty buffers to the pool.
    func giveBuffers(_ pair: consuming BufferPool.Pair) {
        guard latestBuffers == nil, BufferPool.keeps(pair) else { return buffers.give(pair) }
        latestBuffers = pair
    }

    /// The id of a request: the one that a trusted proxy has given it, otherwise a new one.
    func requestID(_ head: RequestHead, in bytes: Span<UInt8>, from peer: HTTPSPolicy.Peer) -> RequestID {
        let given = head.fields.forwarding.requestID
        if !given.isEmpty, peer.isTrusted, let taken = RequestID(taking: given, in: bytes) { return taken }
        return requestIDs.next()
    }

    /// Appends an answer's bytes, dated now.
    func encode(
        _ response: borrowing Response, _ traits: ResponseEncoder.Traits, requestID: RequestID,
        into output: inout [UInt8]
    ) {
        let now = Self.unixTime
        if encoder.unixTime != now { encoder = ResponseEncoder(unixTime: now) }
        encoder.encode(response, traits, requestID: requestID, into: &output)
    }

    /// Logs why a connection was closed without an answer.
    @inline(never)
    func noteClosed(_ reason: String) {
        logger.debug("a connection was closed: \(reason)")
    }

    /// Seconds since 1970.
    static var unixTime: Int64 { Int64(time(nil)) }
}

/// The sums of the loops' metrics.
extension [LoopContext] {
    package func sum(_ value: (LoopMetrics) -> UInt64) -> UInt64 {
        reduce(0) { $0 + value($1.metrics) }
    }

    /// The count of each case, by its word.
    package func counts<Key: CaseIterable & RawRepresentable<String>>(
        _ counters: (LoopMetrics) -> Counters<Key>
    ) -> [(word: String, count: UInt64)] {
        Key.allCases.map { key in (key.rawValue, sum { counters($0).value(key) }) }
    }

    package func reading(_ histogram: (LoopMetrics) -> Histogram) -> Histogram.Reading {
        dropFirst().reduce(histogram(self[0].metrics).reading) { $0 + histogram($1.metrics).reading }
    }

    package var openConnections: UInt64 {
        reduce(0) { $0 + UInt64(Swift.max(0, $1.connectionCount.load(ordering: .relaxed))) }
    }

    /// The requests by method and outcome.
    package var requests: [RequestCounts.Row] { RequestCounts.rows(map(\.metrics.requests)) }
}

/// Receive and send buffers that a loop's connections share, so that an idle connection holds none.
///
/// Belongs to one loop's thread.
struct BufferPool {
    /// A buffer for each direction.
    struct Pair {
        var input: [UInt8] = []
        var output: [UInt8] = []
    }

    /// Bytes that a buffer holds before it has to grow.
    static let bufferSize = 16 << 10
    /// The most pairs that are kept; further ones are freed.
    private static let limit = 32

    private var spare: [Pair] = []

    /// Two empty buffers with at least `bufferSize` bytes of room each.
    mutating func take() -> Pair {
        if let pair = spare.popLast() { return pair }
        var pair = Pair()
        pair.input.reserveCapacity(Self.bufferSize)
        pair.output.reserveCapacity(Self.bufferSize)
        return pair
    }

    /// Takes two empty buffers back, unless they have another size.
    mutating func give(_ pair: consuming Pair) {
        guard Self.keeps(pair), spare.count < Self.limit else { return }
        spare.append(pair)
    }

    /// Whether a pair of buffers has the size at which buffers are kept.
    static func keeps(_ pair: borrowing Pair) -> Bool {
        let usual = bufferSize...2 * bufferSize
        return usual.contains(pair.input.capacity) && usual.contains(pair.output.capacity)
    }
}
