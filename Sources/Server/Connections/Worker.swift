internal import EventLoop
internal import Glibc
internal import HTTP
internal import Logging
internal import Metrics
internal import Settings
package import Synchronization
internal import System
internal import TokenService
internal import TokenStore

/// All that the connections of one loop share.
///
/// Belongs to that loop's thread, but for `connectionCount`.
package final class Worker: @unchecked Sendable {
    // Unchecked: handed to its loop once, before that runs; afterwards only tasks on the loop touch it.

    let loop: EventLoop
    /// For connections and requests that begin from now on.
    private(set) var connectionSettings: ConnectionSettings
    private let session: any TokenSession
    private let answers: AnswerCache?
    private let failures: RateLimitedLog
    /// Shared by all loops.
    package let bufferBudget: BufferBudget
    package let metrics: LoopMetrics
    private let logger: Logger
    private var buffers = BufferPool()
    /// The pair that was given back last, which is the next to be taken: it waits apart from the others, as a field of a class
    /// is read and written without a check at run time where nothing is called meanwhile.
    private var latestBuffers: BufferPool.Pair?
    private var encoder: ResponseEncoder
    private var requestIDs = RequestIDs()
    /// Open connections of this loop, those included that are on their way to it.
    ///
    /// Any thread.
    package let connectionCount = Atomic<Int>(0)
    /// Those of all loops.
    private let totalCount: ConnectionCount
    /// Resumed when the last connection ends.
    private var whenOver: CheckedContinuation<Void, Never>?

    init(
        settings: Settings, store: any TokenStore, answers: AnswerCache?, accessLog: AccessLog?,
        bufferBudget: BufferBudget, totalCount: ConnectionCount, failures: RateLimitedLog, logger: Logger
    ) throws {
        let loop = try EventLoop()
        let metrics = LoopMetrics()
        self.metrics = metrics
        let session = try store.makeSession { work in loop.execute(work) }
        self.loop = loop
        self.session = session
        self.answers = answers
        self.failures = failures
        self.bufferBudget = bufferBudget
        self.totalCount = totalCount
        self.logger = logger
        (connectionSettings, encoder) = Self.connectionSettings(
            settings, session, answers, accessLog, failures, metrics)
        // Writes of one turn share a commit; nobody works on them before this.
        loop.endOfTurn = {
            session.flush()
            metrics.endTurn(began: loop.lastWait)
        }
    }

    // MARK: - Settings

    /// Has connections and requests that begin from now on go by these settings, and all answers tell of https as they say.
    func apply(_ settings: Settings, accessLog: AccessLog?) {
        (connectionSettings, encoder) = Self.connectionSettings(
            settings, session, answers, accessLog, failures, metrics)
    }

    private static func connectionSettings(
        _ settings: Settings, _ session: any TokenSession, _ answers: AnswerCache?, _ accessLog: AccessLog?,
        _ failures: RateLimitedLog, _ metrics: LoopMetrics
    ) -> (ConnectionSettings, ResponseEncoder) {
        let service = TokenService(
            settings: TokenService.Settings(paths: settings.paths, readsJSON: settings.readsJSON),
            session: session, answers: answers,
            report: { error, requestID in
                metrics.storeFailures.add(error.cause)
                // The store itself tells when writes begin to fail, and when they are over it.
                if !error.isReportedByStore {
                    failures.log("the store failed, the client was told so: \(error)", requestID: requestID)
                }
            },
            noteRead: { metrics.storeReads.add() }
        )
        return (
            ConnectionSettings(settings, service: service, accessLog: accessLog),
            ResponseEncoder(
                unixTime: unixTime, secureForSeconds: Int(settings.https.hstsMaxAge.components.seconds)
            )
        )
    }

    // MARK: - Connections

    /// Serves a connection from its first byte to its last, after it was counted by `expectConnection`.
    ///
    /// - Parameters:
    ///   - descriptor: A connected socket that this call owns.
    ///   - peer: The client.
    ///   - listener: Where the client came in.
    ///   - isRefused: One connection too many: it is told so and closed.
    func serve(_ descriptor: Int32, from peer: SocketAddress, through listener: ClientListener, isRefused: Bool) {
        let stream: TCPStream
        do throws(SystemError) {
            stream = try TCPStream(FileDescriptor(owning: descriptor), on: loop)
        } catch {
            // The client was gone before it was served.
            return noteEnd()
        }
        let origin = connectionSettings.https.origin(
            address: IPAddress(networkOrder: peer.addressBytes[...]), isTLS: false, port: listener.listener.port)
        let connection = Connection(stream, from: origin, on: self)
        ConnectionDriver(connection, on: self).start(through: listener, isRefused: isRefused)
    }

    /// Counts a connection that is about to be served here.
    ///
    /// Any thread.
    func expectConnection() {
        connectionCount.add(1, ordering: .relaxed)
    }

    /// Counts a connection that is over.
    func noteEnd() {
        totalCount.subtract()
        if connectionCount.subtract(1, ordering: .relaxed).newValue == 0 { whenOver.take()?.resume() }
    }

    /// Returns when all connections are over; nobody may start one meanwhile.
    func waitForConnections() async {
        if connectionCount.load(ordering: .relaxed) == 0 { return }
        await withCheckedContinuation { whenOver = $0 }
    }

    // MARK: - What they share

    /// Empty buffers to receive into and to send from.
    func takeBuffers() -> BufferPool.Pair {
        latestBuffers.take() ?? buffers.take()
    }

    /// Takes empty buffers back.
    func giveBuffers(_ pair: consuming BufferPool.Pair) {
        guard latestBuffers == nil, BufferPool.keeps(pair) else { return buffers.give(pair) }
        latestBuffers = pair
    }

    /// The id of a request: a trusted proxy's, otherwise a new one.
    func requestID(_ given: ByteRange, in bytes: Span<UInt8>, from origin: HTTPSPolicy.Origin) -> RequestID {
        if !given.isEmpty, origin.isTrusted, let taken = RequestID(taking: given, in: bytes) { return taken }
        return requestIDs.next()
    }

    /// Appends an answer's bytes, dated now.
    func encode(
        _ response: borrowing Response, _ traits: ResponseEncoder.Traits, requestID: RequestID,
        into output: inout [UInt8]
    ) {
        let now = Self.unixTime
        if encoder.unixTime != now { encoder = encoder.at(unixTime: now) }
        encoder.encode(response, traits, requestID: requestID, into: &output)
    }

    /// Logs why a connection was closed without an answer, for whoever looks for it.
    @inline(never)
    func noteClosed(_ reason: String) {
        logger.debug("a connection was closed: \(reason)")
    }

    /// Seconds since 1970.
    static var unixTime: Int64 { Int64(time(nil)) }
}
