import Foundation

@testable import TokenCacheClient

/// A server in memory: with versions as token-cache has them, or without as in its mode `open`.
final class VersionedServer: Sendable {
    struct Row {
        var text: String?
        var version = 0
    }

    let row = Locked(Row())
    /// Answers that are lost on the way, by the number of the request.
    let lost = Locked<Set<Int>>([])
    let losesAnswers = Locked(false)
    let isDown = Locked(false)
    private let hasVersions: Bool

    init(hasVersions: Bool = true) {
        self.hasVersions = hasVersions
    }

    func transport() -> ScriptedTransport {
        ScriptedTransport { [self] request, number in
            if isDown.withLock({ $0 }) { throw TokenCacheError.unreachable(code: -1004) }
            let response = row.withLock { answer(request, &$0) }
            if lost.withLock({ $0.contains(number) }) || losesAnswers.withLock({ $0 }) {
                throw TokenCacheError.unreachable(code: -1005)
            }
            return response
        }
    }

    private func answer(_ request: TransportRequest, _ row: inout Row) -> TransportResponse {
        let tag = #""\#(row.version)""#
        let isThere = row.text != nil
        if hasVersions {
            if let expected = request.headers["If-Match"], expected != tag || !isThere {
                return request.answer("{}", status: 412)
            }
            if request.headers["If-None-Match"] == "*", isThere { return request.answer("{}", status: 412) }
        }
        if request.method == "POST" {
            row.text = decoded(request.text, "token_info")
            row.version += 1
            return request.answer(Answers.stored, headers: hasVersions ? ["ETag": #""\#(row.version)""#] : [:])
        }
        guard let text = row.text else { return request.answer(Answers.nothing) }
        return request.answer(Answers.found(text), headers: hasVersions ? ["ETag": tag] : [:])
    }
}
