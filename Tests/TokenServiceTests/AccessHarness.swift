import Cryptography
import HTTP
import StoreConformance
import Synchronization
import TokenStore

@testable import TokenService

/// A router in mode `session` over a store in memory, whose every step is the test's.
final class AccessHarness {
    /// Work that the store hands to the handle's thread, until the test has it done.
    private final class Deliveries: Sendable {
        private let waiting = Mutex<[@Sendable () -> Void]>([])

        func add(_ work: @escaping @Sendable () -> Void) { waiting.withLock { $0.append(work) } }

        /// Does the work that came first; false if there is none.
        func doNext() -> Bool {
            let work = waiting.withLock { $0.isEmpty ? nil : $0.removeFirst() }
            work?()
            return work != nil
        }
    }

    private let deliveries = Deliveries()
    private let handle: any StoreHandle
    /// Another loop's, whose outcomes are known at once.
    private let other: any StoreHandle
    let sessions: SessionCache
    /// How many bytes may wait for the store.
    private static let queueLimit = 1 << 20
    private(set) var failures: [AccessFailure] = []
    /// Called once, when the next GET begins to read the token.
    var beforeRead: (() -> Void)?
    private var router: RequestRouter?

    /// - Parameter reportsEnds: Whether the store reports the end of sessions, as it does unless several servers share it.
    init(readsLater: Bool = false, reportsEnds: Bool = true, trail: AuditTrail? = nil) throws {
        let answers = AnswerCache(limit: 0)
        sessions = SessionCache(limit: 1 << 20, seesEnds: reportsEnds)
        var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: ""))
        options.queueLimit = Self.queueLimit
        let store = MemoryStore(MemoryDisk(), options: options, readsLater: readsLater)
        if reportsEnds { store.report(writesTo: ServiceCaches(answers, sessions)) }
        let deliveries = deliveries
        handle = try store.makeHandle { deliveries.add($0) }
        other = try store.makeHandle { $0() }
        let service = TokenService(
            paths: ["/token", "/token.php"], readsJSON: false, handle: handle, answers: answers,
            report: { _, _ in }, noteRead: { [unowned self] in beforeRead.take()?() })
        let access = UserAccess(.session(idleTimeout: 1_000))
        let guardian = AccessGuard(limiter: nil, trail: trail) { [unowned self] in failures.append($0) }
        router = RequestRouter(
            service, access: (access, sessions), guardian: guardian, api: nil)
    }

    // MARK: - What another loop does

    /// Makes a session; its text and its id.
    ///
    /// - Parameter usedAt: When it was last used; nil for now.
    func makeSession(of user: String, usedAt: Int64? = nil) throws -> (text: String, id: SessionID) {
        let secret = RandomBytes.secret(SessionSecret.length)
        let now = MemoryRow.now
        let new = UserSession(
            id: .random(), user: Array(user.utf8), createdAt: now, expiresAt: now + 3_600, lastUsedAt: usedAt)
        other.createSession(
            new, try other.sessionKey(of: secret.span), perUser: 20, completion: Completion { _ in })
        other.flush()
        return (String(decoding: SessionSecret.text(of: secret.span), as: UTF8.self), new.id)
    }

    func end(_ id: SessionID) {
        other.endSession(id: id, completion: Completion { _ in })
        other.flush()
    }

    func store(_ info: String, for user: String) {
        other.store(Array(info.utf8), under: Array(user.utf8), if: WriteCondition(), completion: Completion { _ in })
        other.flush()
    }

    /// When the user's only session was last used, as far as the store knows.
    func lastUse(of user: String) -> Int64? {
        var found: [UserSession] = []
        other.listSessions(of: Array(user.utf8), completion: Completion { found = (try? $0.get()) ?? [] })
        return found.first?.lastUsedAt
    }

    /// Fills the store's queue during a closure.
    func whileQueueIsFull(_ body: () -> Void) {
        let info = [UInt8](repeating: 0x78, count: Self.queueLimit - Token.waitingBytes(id: [0x78], info: []))
        other.store(info, under: [0x78], if: WriteCondition(), completion: Completion { _ in })
        body()
        other.flush()
    }

    // MARK: - Requests

    /// A request and its client.
    final class Exchange: AnswerTaker {
        private var pending: PendingAnswer?
        private(set) var response: Response?

        func take(_ answer: Answer) {
            pending = nil
            switch answer {
            case .now(let response): self.response = response
            case .inPieces(var long):
                var body: [UInt8] = []
                while !long.isComplete { long.appendPiece(to: &body) }
                response = Response(body: body, version: long.version)
            case .later(let answer):
                pending = answer
                if let answer = answer.begin(for: self) { take(answer) }
            }
        }

        /// The client disconnects.
        func leave() { pending?.abandon() }

        var body: String? { response.map { String(decoding: $0.body, as: UTF8.self) } }
    }

    /// The answer to a request, as far as it is there at once.
    func answer(_ line: String, _ fields: String...) -> Answer {
        let reader = RequestReader(
            reading: "\(line) HTTP/1.1\r\nHost: a\r\n\(fields.map { $0 + "\r\n" }.joined())\r\n")
        guard let router else { fatalError("the router is made with the harness") }
        return router.answer(to: reader.request, in: reader.requestBytes, requestID: .none, from: .any())
    }

    /// Begins a request.
    func begin(_ answer: Answer) -> Exchange {
        let exchange = Exchange()
        exchange.take(answer)
        return exchange
    }

    /// Has the gathered changes made, and all that the store hands over done.
    func finish() {
        repeat { handle.flush() } while deliveries.doNext()
    }

    func flush() { handle.flush() }

    /// One delivery of the store; false if there is none.
    func deliverNext() -> Bool { deliveries.doNext() }
}
