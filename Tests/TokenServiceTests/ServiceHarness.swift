import HTTP
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
            case .refused(let refusal): return answer(refusal)
            case .sendContinue: continue
            case .needsMore(let part): fatalError("the test's request is not whole: \(part) is missing")
            }
        }
    }

    func body(_ request: String) async -> String {
        String(decoding: await answer(Array(request.utf8)).body, as: UTF8.self)
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
        handle.observer = answers
        service = TokenService(
            settings: TokenService.Settings(readsJSON: readsJSON), handle: handle, answers: answers,
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
