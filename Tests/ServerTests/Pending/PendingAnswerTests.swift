import EventLoop
import Metrics
import Testing
import TokenStore

@testable import Server

/// Connections whose answers come later, or never.
@Suite struct PendingAnswerTests {
    private let stored = #"{"status":"true"}"#
    private let unknown =
        #"{"status":"false","errorCode":"50002","errorMessage":"Could not read file contents or data empty."}"#
    private let failed = #"{"status":"false","errorCode":"50001","errorMessage":"Could not write file contents."}"#

    private func found(_ info: String) -> String { #"{"status":"true","token_info":"\#(info)"}"# }

    @Test("an answer that comes later is sent, and the connection goes on")
    func later() async throws {
        let harness = try ContextHarness()
        let client = try harness.connect()
        client.get("a")
        try await harness.waitUntilAsked("read a")
        #expect(harness.budget.takenBytes > 0)
        harness.handle.finishRead("a", found: "1")
        #expect(try await client.answer().body == found("1"))
        client.post("a")
        try await harness.waitUntilAsked("read a", "write a")
        harness.handle.finishWrite("a")
        #expect(try await client.answer().body == stored)
        client.get("b")
        try await harness.waitUntilAsked("read a", "write a", "read b")
        harness.handle.finishRead("b", .failure(.closed))
        #expect(try await client.answer().body == unknown)
        client.leave()
        try await harness.waitUntilClosed()
        #expect(harness.budget.takenBytes == 0)
        #expect(harness.context.metrics.getTime.reading.counts.reduce(0, +) == 2)
        #expect(harness.context.metrics.postTime.reading.counts.reduce(0, +) == 1)
    }

    @Test("an answer that never comes is one of failure after the time limit, and one that comes too late is dropped")
    func never() async throws {
        let harness = try ContextHarness(timeLimit: .milliseconds(100))
        let (client, writer) = (try harness.connect(), try harness.connect())
        client.get("a")
        try await harness.waitUntilAskedFor(1)
        writer.post("a")
        #expect(try await client.answer().body == unknown)
        #expect(try await writer.answer().body == failed)
        harness.handle.timeLimit = nil
        harness.handle.finishRead("a", found: "late")
        harness.handle.finishWrite("a")
        client.get("b")
        try await harness.waitUntilAsked("read a", "write a", "read b")
        harness.handle.finishRead("b", found: "2")
        #expect(try await client.answer().body == found("2"))
    }

    @Test("pipelined requests wait behind a pending answer, and answers keep their order")
    func pipelined() async throws {
        let harness = try ContextHarness()
        let client = try harness.connect()
        client.get("a")
        client.post("b")
        client.send("HEAD /token HTTP/1.1\r\nHost: a\r\n\r\n")
        client.get("c")
        try await harness.waitUntilAsked("read a")
        #expect(try await client.isSilent)
        harness.handle.finishRead("a", found: "1")
        #expect(try await client.answer().body == found("1"))
        try await harness.waitUntilAsked("read a", "write b")
        harness.handle.finishWrite("b")
        #expect(try await client.answer().body == stored)
        try await harness.waitUntilAsked("read a", "write b", "read c")
        harness.handle.finishRead("c", found: "3")
        #expect(try await client.answer().status == 200)
    }

    @Test("answers of several connections come in any order")
    func outOfOrder() async throws {
        let harness = try ContextHarness()
        let ids = ["a", "b", "c", "d"]
        var clients: [TestClient] = []
        for id in ids {
            let client = try harness.connect()
            client.get(id)
            clients.append(client)
            try await harness.waitUntilAskedFor(clients.count)
        }
        for id in ids.reversed() { harness.handle.finishRead(id, found: "of \(id)") }
        for (id, client) in zip(ids, clients) { #expect(try await client.answer().body == found("of \(id)")) }
    }

    @Test("a client that has left is not waited for, and what it asked for goes on to its end")
    func left() async throws {
        let harness = try ContextHarness()
        let (reader, writer) = (try harness.connect(), try harness.connect())
        reader.get("a")
        try await harness.waitUntilAskedFor(1)
        writer.post("b")
        try await harness.waitUntilAskedFor(2)
        #expect(harness.budget.takenBytes > 0)
        reader.leave()
        writer.leave()
        try await harness.waitUntilClosed()
        #expect(harness.budget.takenBytes == 0)
        harness.handle.finishRead("a", found: "1")
        harness.handle.finishWrite("b")
        let other = try harness.connect()
        other.get("c")
        try await harness.waitUntilAskedFor(3)
        harness.handle.finishRead("c", found: "3")
        #expect(try await other.answer().body == found("3"))
    }

    @Test("a client that only ends its sending gets its answer")
    func halfClosed() async throws {
        let harness = try ContextHarness()
        let client = try harness.connect()
        client.get("a")
        client.finishSending()
        try await harness.waitUntilAsked("read a")
        harness.handle.finishRead("a", found: "1")
        #expect(try await client.answer().body == found("1"))
        try await client.end()
    }

    @Test("while draining a pending answer is still sent, as the last of its connection")
    func draining() async throws {
        let harness = try ContextHarness()
        let client = try harness.connect()
        client.post("a")
        try await harness.waitUntilAsked("write a")
        harness.context.loop.beginDraining()
        harness.context.loop.endIdleWaits()
        #expect(try await client.isSilent)
        harness.handle.finishWrite("a")
        #expect(try await client.answer() == TestClient.Answer(status: 200, body: stored, closes: true))
        try await client.end()
    }

    @Test(
        "an abandoned loop waits for a store that ends every wait by itself, for no other one",
        arguments: [true, false])
    func abandoned(hasLimit: Bool) async throws {
        let harness = try ContextHarness(timeLimit: hasLimit ? .seconds(3_600) : nil)
        let client = try harness.connect()
        client.post("a")
        try await harness.waitUntilAsked("write a")
        harness.context.loop.abandon()
        if !hasLimit {
            #expect(try await client.isSilent)
            harness.handle.finishWrite("a")
        }
        #expect(try await client.answer().body == (hasLimit ? failed : stored))
        try await client.end()
        try await harness.waitUntilClosed()
    }

    @Test("without room for what waits the answer is one of failure, and nothing is written")
    func fullBudget() async throws {
        let harness = try ContextHarness(budget: 100)
        let client = try harness.connect()
        client.post("a")
        #expect(try await client.answer().body == failed)
        client.get("a")
        #expect(try await client.answer().body == unknown)
        #expect(harness.handle.asked == ["read a"])
        harness.handle.finishRead("a", found: "nobody waits")
        #expect(harness.budget.takenBytes == 0)
    }

    @Test("a long token info is read in a second step, which may come later as well")
    func long() async throws {
        let harness = try ContextHarness()
        let client = try harness.connect()
        client.get("a")
        try await harness.waitUntilAsked("read a")
        harness.handle.finishRead("a", .success(.longer))
        try await harness.waitUntilAsked("read a", "read a")
        let info = String(repeating: "x", count: 700_000)
        harness.handle.finishRead("a", found: info)
        #expect(try await client.answer().body == found(info))
        client.get("b")
        try await harness.waitUntilAskedFor(3)
        harness.handle.finishRead("b", .success(.longer))
        try await harness.waitUntilAskedFor(4)
        harness.handle.finishRead("b", .success(.nothing))
        #expect(try await client.answer().body == unknown)
        client.leave()
        try await harness.waitUntilClosed()
        #expect(harness.context.metrics.getTime.reading.counts.reduce(0, +) == 2, "each is measured once")
    }

    @Test("input that was not read does not cut the last answer off", arguments: ["\r\n", "GET / HTTP/1.1\r\n"])
    func unreadInput(stray: String) async throws {
        let harness = try ContextHarness()
        let client = try harness.connect()
        client.post("a", closing: true)
        try await harness.waitUntilAsked("write a")
        client.send(stray)
        try await Task.sleep(for: .milliseconds(20))
        harness.handle.finishWrite("a")
        #expect(try await client.answer() == TestClient.Answer(status: 200, body: stored, closes: true))
        try await client.end()
    }
}
