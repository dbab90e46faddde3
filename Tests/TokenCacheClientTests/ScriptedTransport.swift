import Foundation
import Testing

@testable import TokenCacheClient

/// A transport that answers by a closure, and keeps the requests.
final class ScriptedTransport: Transport {
    private let answer: @Sendable (TransportRequest, Int) async throws -> TransportResponse
    private let received = Locked<[TransportRequest]>([])

    /// The closure gets each request with its number, from 1.
    init(_ answer: @escaping @Sendable (TransportRequest, Int) async throws -> TransportResponse) {
        self.answer = answer
    }

    var requests: [TransportRequest] { received.current }

    func send(_ request: TransportRequest) async throws -> TransportResponse {
        let number = received.withLock { received in
            received.append(request)
            return received.count
        }
        return try await answer(request, number)
    }
}

func url(_ text: String = "https://tokens.example.com/token.php") throws -> URL {
    try #require(URL(string: text))
}

/// A cache that waits for its server however busy the machine is.
func remote(_ identity: RemoteTokenCache.Identity, _ transport: any Transport) throws -> RemoteTokenCache {
    try RemoteTokenCache(url: url(), identity: identity, transport: transport, timeout: .seconds(3_600))
}

func remote(_ transport: any Transport) throws -> RemoteTokenCache {
    try remote(.uniqueID("a"), transport)
}

extension TransportRequest {
    func answer(_ body: String, status: Int = 200, headers: [String: String] = [:]) -> TransportResponse {
        TransportResponse(url: url, status: status, headers: headers, body: Data(body.utf8))
    }

    var text: String { body.map { String(decoding: $0, as: UTF8.self) } ?? "" }
}

/// Answers of the server.
enum Answers {
    static let stored = #"{"status":"true"}"#
    static let nothing =
        #"{"status":"false","errorCode":"50002","errorMessage":"Could not read file contents or data empty."}"#
    static let notStored = #"{"status":"false","errorCode":"50001","errorMessage":"Could not write file contents."}"#

    static let conditionFailed = #"{"status":"false","errorCode":"41200"}"#

    static func found(_ tokenInfo: String) -> String {
        JSON.text(["status": "true", "token_info": tokenInfo])
    }
}

/// A server in memory: with versions as token-cache has them, or without as in its mode `open`.
final class VersionedServer: Sendable {
    struct Row {
        var text: String?
        var version = 0
    }

    let row = Locked(Row())
    /// Whether answers are lost on the way.
    let losesAnswers = Locked(false)
    let isDown = Locked(false)
    let hasVersions: Bool

    init(hasVersions: Bool = true) {
        self.hasVersions = hasVersions
    }

    /// The token that is stored; nil if there is none.
    var token: String? {
        row.withLock { $0.text }.flatMap { try? TokenInformation(text: $0) }?.token
    }

    /// What a client has stored that knows of no conditions.
    func put(_ text: String) {
        row.withLock { $0 = Row(text: text, version: $0.version + 1) }
    }

    func transport() -> ScriptedTransport {
        ScriptedTransport { [self] request, _ in
            if isDown.current { throw TokenCacheError.unreachable(code: -1004) }
            let response = row.withLock { answer(request, &$0) }
            if losesAnswers.current { throw TokenCacheError.unreachable(code: -1005) }
            return response
        }
    }

    private func answer(_ request: TransportRequest, _ row: inout Row) -> TransportResponse {
        let tag = #""\#(row.version)""#
        let isThere = row.text != nil
        if hasVersions {
            if let expected = request.headers["If-Match"], expected != tag || !isThere {
                return request.answer(Answers.conditionFailed, status: 412)
            }
            if request.headers["If-None-Match"] == "*", isThere {
                return request.answer(Answers.conditionFailed, status: 412)
            }
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
