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

    var requests: [TransportRequest] { received.withLock { $0 } }

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

func remote(_ identity: RemoteTokenCache.Identity, _ transport: any Transport) throws -> RemoteTokenCache {
    try RemoteTokenCache(url: url(), identity: identity, transport: transport)
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

    static func found(_ tokenInfo: String) -> String {
        JSON.text(["status": "true", "token_info": tokenInfo])
    }
}

/// A clock on which sleeps end at once, and move the time forward.
struct HastyClock: Clock {
    struct Instant: InstantProtocol {
        var time: Duration
        func advanced(by duration: Duration) -> Instant { Instant(time: time + duration) }
        func duration(to other: Instant) -> Duration { other.time - time }
        static func < (left: Instant, right: Instant) -> Bool { left.time < right.time }
    }

    private let time = Locked(Duration.zero)
    /// Sleeps of this length and longer, such as deadlines, never end.
    var longest = Duration.seconds(25)
    let sleeps = Locked<[Duration]>([])

    var now: Instant { Instant(time: time.withLock { $0 }) }
    var minimumResolution: Duration { .nanoseconds(1) }

    func sleep(until deadline: Instant, tolerance: Duration?) async throws {
        let length = deadline.time - now.time
        guard length < longest else {
            try await Task.sleep(for: .seconds(3_600))
            return
        }
        sleeps.withLock { $0.append(length) }
        time.withLock { $0 = max($0, deadline.time) }
        await Task.yield()
    }
}
