import HTTP
import StoreConformance
import System
import TokenService
import TokenStore

extension TokenService {
    /// The answer to one whole request; a request that cannot be read is answered too.
    func answer(_ request: [UInt8]) async -> Response {
        var reader = RequestReader(limits: RequestLimits())
        reader.bytes = request
        while true {
            switch reader.next() {
            case .request:
                return await whole(answer(to: reader.request, in: reader.requestBytes))
            case .refused(let refusal): return Response(refusal)
            case .sendContinue: continue
            case .needsMore(let part): fatalError("the test's request is not whole: \(part) is missing")
            }
        }
    }

    func body(_ request: String) async -> String {
        String(decoding: await answer(Array(request.utf8)).body, as: UTF8.self)
    }

    /// A service without a cache, whose failures are told to nobody.
    convenience init(_ handle: any StoreHandle) {
        self.init(paths: ["/token"], readsJSON: false, handle: handle, answers: nil, report: { _, _ in })
    }
}

extension RequestReader {
    /// A reader that has read this request.
    init(reading request: String, limits: RequestLimits = RequestLimits()) {
        self.init(limits: limits)
        bytes = Array(request.utf8)
        guard case .request = next() else { fatalError("the test's request is not one") }
    }
}

extension RequestSource {
    /// A client to which no rule for https applies.
    static func any(_ address: String? = nil) -> RequestSource {
        let policy = HTTPSPolicy(mode: .off, trusted: [], publicHost: "")
        let client = address.flatMap { IPAddress($0) }
        return RequestSource(peer: policy.peer(address: client), client: client)
    }
}

/// The answer when it is here and whole.
func whole(_ answer: Answer, isolation: isolated (any Actor)? = #isolation) async -> Response {
    switch answer {
    case .now(let response): return response
    case .inPieces(var answer):
        var body: [UInt8] = []
        while !answer.isComplete { answer.appendPiece(to: &body) }
        return Response(body: body)
    case .later(let answer):
        let taker = Taker()
        if let answer = answer.begin(for: taker) { return await whole(answer) }
        return await whole(await taker.answer())
    }
}

/// Suspends a test until its answer comes.
private final class Taker: AnswerTaker {
    private var taken: Answer?
    private var waiting: CheckedContinuation<Void, Never>?

    func take(_ answer: Answer) {
        taken = answer
        waiting.take()?.resume()
    }

    func answer() async -> Answer {
        if taken == nil { await withCheckedContinuation { waiting = $0 } }
        guard let taken else { preconditionFailure("the test goes on when there is an answer") }
        return taken
    }
}

/// The service with a store in memory, driven with requests as text.
struct ServiceHarness {
    let handle = MemoryStoreHandle()
    let answers = AnswerCache(limit: 1 << 20)
    let service: TokenService

    init(readsJSON: Bool = false, report: @escaping (StoreError) -> Void = { _ in }) {
        handle.observer = ServiceCaches(answers, SessionCache(limit: 0))
        service = TokenService(
            paths: ["/token", "/token.php"], readsJSON: readsJSON, handle: handle, answers: answers,
            report: { error, _ in report(error) }
        )
    }

    func answer(_ request: [UInt8]) async -> Response {
        await service.answer(request)
    }

    func body(_ request: String) async -> String {
        await service.body(request)
    }

    func get(_ query: String) async -> String {
        await body("GET /token?\(query) HTTP/1.1\r\nHost: a\r\n\r\n")
    }

    func post(_ body: String, type: String = "application/x-www-form-urlencoded", query: String = "") async -> String {
        let length = body.utf8.count
        return await self.body(
            "POST /token?\(query) HTTP/1.1\r\nHost: a\r\nContent-Type: \(type)\r\nContent-Length: \(length)\r\n\r\n\(body)"
        )
    }
}

let stored = #"{"status":"true"}"#
let invalid = #"{"status":"false","errorCode":"30001","errorMessage":"Invalid data input."}"#
let unknown = #"{"status":"false","errorCode":"50002","errorMessage":"Could not read file contents or data empty."}"#

/// A service with a thread of its own, as far as the store can tell: an actor that hands writes over at once.
actor ServiceActor {
    private var handle: (any StoreHandle)?
    private var service: TokenService?

    static func open(_ store: any TokenStore, _ answers: AnswerCache) async throws -> ServiceActor {
        let actor = ServiceActor()
        try await actor.start(store, answers)
        return actor
    }

    private func start(_ store: any TokenStore, _ answers: AnswerCache) throws {
        let handle = try store.makeHandle { work in Task { await self.run(work) } }
        self.handle = handle
        service = TokenService(
            paths: ["/token", "/token.php"], readsJSON: false, handle: handle, answers: answers, report: { _, _ in }
        )
    }

    private func run(_ work: @Sendable () -> Void) {
        work()
    }

    /// The token info that a GET gives; nil if there is none.
    func get(_ id: String) async -> String? {
        guard let service else { return nil }
        let body = await service.body("GET /token?unique_id=\(id) HTTP/1.1\r\nHost: a\r\n\r\n")
        let start = #"{"status":"true","token_info":""#
        return body.hasPrefix(start) ? String(body.dropFirst(start.count).dropLast(2)) : nil
    }

    /// POSTs a token info; others may do so meanwhile, and share its commit.
    func put(_ tokenInfo: String, under id: String) async throws {
        // Runs as soon as the call below waits, like a loop's end of turn.
        Task { self.flush() }
        guard let service else { return }
        let target = "/token?unique_id=\(id)&token_info=\(tokenInfo)"
        guard await service.body("POST \(target) HTTP/1.1\r\nHost: a\r\n\r\n") == stored else {
            throw StoreError.closed
        }
    }

    func flush() {
        handle?.flush()
    }
}

/// A store in a dictionary, or one that always fails.
final class MemoryStoreHandle: TokensOnlyHandle {
    var tokens: [[UInt8]: [UInt8]] = [:]
    var failure: StoreError?
    /// Learns of all writes.
    var observer: (any WriteObserver)?
    /// Whether each id is its own token info.
    var echoesIDs = false
    /// The fetches that wait; nil if they are answered at once.
    var waiting: [Completion<Fetched>]?
    /// The ids that were asked for.
    private(set) var fetched: [[UInt8]] = []

    func fetch(
        _ id: [UInt8], upTo limit: Int, if session: SessionKey?, orLater makeCompletion: () -> Completion<Fetched>
    ) throws(StoreError) -> Fetched? {
        fetched.append(id)
        if let failure { throw failure }
        if waiting != nil {
            waiting?.append(makeCompletion())
            return nil
        }
        guard let found = echoesIDs ? id : tokens[id] else { return .nothing }
        guard found.count <= limit else { return .longer }
        return .found(found, writtenAt: 0, until: .max, version: TokenVersion(rawValue: 1))
    }

    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], writtenAt: Int64?, if condition: WriteCondition,
        completion: Completion<TokenVersion>
    ) {
        if let failure { return completion(.failure(failure)) }
        observer?.willWrite([id])
        tokens[id] = tokenInfo
        observer?.didWrite([id])
        completion(.success(TokenVersion(rawValue: 1)))
    }

    func flush() {}
}
