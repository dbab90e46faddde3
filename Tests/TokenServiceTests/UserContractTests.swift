import HTTP
import StoreConformance
import Testing
import TokenStore

@testable import TokenService

/// What other threads do to a session while a request is being answered.
@Suite struct UserContractTests {
    private static let new = #"{"status":"true","token_info":"new"}"#

    /// Ends a session, and then stores a token that whoever has the session must never see.
    private static func replace(_ session: SessionID, _ harness: AccessHarness) {
        harness.end(session)
        harness.store("new", for: "anna")
    }

    @Test(arguments: [(true, true), (true, false), (false, false)], ["", "If-Match: *", #"If-None-Match: "1""#])
    func `no token is read that was stored after the session's end`(
        _ session: (isReported: Bool, isCached: Bool), _ condition: String
    ) throws {
        let harness = try AccessHarness(reportsEnds: session.isReported)
        harness.store("old", for: "anna")
        let made = try harness.makeSession(of: "anna")
        if session.isCached {
            #expect(harness.begin(harness.answer("GET /token?unique_id=\(made.text)")).response?.version != nil)
        }
        harness.beforeRead = { Self.replace(made.id, harness) }
        let fields = ["Authorization: Bearer \(made.text)", condition].filter { !$0.isEmpty }
        let exchange = harness.begin(harness.answer("GET /token", fields.joined(separator: "\r\n")))
        // Whatever the request's conditions: they do not count for those who may not read.
        #expect(exchange.response?.status == .unauthorized)
        #expect(exchange.response?.version == nil)
        #expect(exchange.body?.contains("new") == false)
    }

    @Test(arguments: [true, false])
    func `a store that is far away is asked for the session again with the token`(reportsEnds: Bool) throws {
        let harness = try AccessHarness(readsLater: true, reportsEnds: reportsEnds)
        harness.store("old", for: "anna")
        let session = try harness.makeSession(of: "anna")
        let other = try harness.makeSession(of: "anna")
        let target = "GET /token?unique_id=\(session.text)"
        // The end of the session before each of the steps, and after the last.
        for steps in 0...3 {
            let made = try harness.makeSession(of: "anna")
            harness.store("old", for: "anna")
            let exchange = harness.begin(harness.answer("GET /token?unique_id=\(made.text)"))
            for _ in 0..<steps { _ = harness.deliverNext() }
            let isAnswered = exchange.response != nil
            Self.replace(made.id, harness)
            harness.finish()
            #expect(exchange.body?.contains("new") == false, "\(steps) steps")
            #expect(!isAnswered || exchange.body?.contains("old") == true)
        }
        // Others are still answered, also if they share the group of one that ended.
        let exchange = harness.begin(harness.answer(target))
        _ = harness.deliverNext()
        harness.end(other.id)
        harness.sessions.didChangeEverything()
        harness.finish()
        #expect(exchange.body == Self.new)
    }

    @Test(arguments: [true, false])
    func `a long token is not read once the session has ended`(hasEnded: Bool) throws {
        let harness = try AccessHarness()
        let long = String(repeating: "x", count: 2 * TokenService.shortTokenInfo)
        harness.store(long, for: "anna")
        let session = try harness.makeSession(of: "anna")
        let answer = harness.answer("GET /token?unique_id=\(session.text)")
        if hasEnded { Self.replace(session.id, harness) }
        let exchange = harness.begin(answer)
        #expect(exchange.response?.errorCode == (hasEnded ? .denied : ErrorCode.none))
        #expect(exchange.body?.contains(long) == !hasEnded)
        #expect(exchange.body?.contains("new") == false)
    }

    @Test
    func `a write whose session ends while it waits is not made`() throws {
        for readsLater in [false, true] {
            let harness = try AccessHarness(readsLater: readsLater)
            harness.store("old", for: "anna")
            let session = try harness.makeSession(of: "anna")
            let write = "POST /token?token_info=stolen&unique_id=\(session.text)"
            let exchange = harness.begin(harness.answer(write))
            while readsLater, harness.deliverNext() {}
            harness.end(session.id)
            harness.finish()
            #expect(exchange.response?.errorCode == .denied)
            let reader = try harness.makeSession(of: "anna")
            let read = harness.begin(harness.answer("GET /token?unique_id=\(reader.text)"))
            harness.finish()
            #expect(read.body == #"{"status":"true","token_info":"old"}"#)
        }
    }

    @Test
    func `a use that the store had no room for is noted by the next request`() throws {
        let harness = try AccessHarness()
        let lastUse = MemoryRow.now - 600
        let session = try harness.makeSession(of: "anna", usedAt: lastUse)
        func use() -> String? {
            let exchange = harness.begin(harness.answer("GET /token?unique_id=\(session.text)"))
            harness.finish()
            return exchange.body
        }
        harness.whileQueueIsFull { #expect(use() == unknown) }
        #expect(harness.lastUse(of: "anna") == lastUse)
        #expect(use() == unknown)
        #expect(harness.lastUse(of: "anna") != lastUse)
    }

    @Test
    func `a write without room is not begun, and one whose client has left is done`() throws {
        let harness = try AccessHarness()
        let session = try harness.makeSession(of: "anna")
        func read() -> String? {
            let exchange = harness.begin(harness.answer("GET /token?unique_id=\(session.text)"))
            harness.finish()
            return exchange.body
        }
        guard case .later(let refused) = harness.answer("POST /token?token_info=1&unique_id=\(session.text)") else {
            Issue.record("a write waits")
            return
        }
        #expect(refused.bytes > 0)
        #expect(refused.failForLackOfRoom().errorCode == .writeFailed)
        #expect(read() == unknown)
        let left = harness.begin(harness.answer("POST /token?token_info=new&unique_id=\(session.text)"))
        left.leave()
        harness.finish()
        #expect(read() == Self.new)
        #expect(left.response == nil)
    }

    @Test func `an answer that nothing has changed still tells of a token that could not be refreshed`() throws {
        let reader = RequestReader(reading: "GET /token HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"7\"\r\n\r\n")
        var response = Response(body: [], version: 7)
        response.extras = Response.Extras(tokenRefresh: "later")
        let answer = try Preconditions(of: reader.request.head, in: reader.requestBytes).applied(to: response)
        #expect(answer.status == .notModified && answer.extras?.tokenRefresh == "later")
    }
}
