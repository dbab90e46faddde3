import Audit
import Foundation
import Settings
import StoreConformance
import Synchronization
import TestSupport
import Testing
import TokenStore

@testable import Operations

@Suite struct AuditedRequestTests {
    private let directory = TemporaryDirectory()
    private let log: AuditLog
    private let audited: AuditedStore
    private let settings = SharedSettings()

    /// Settings that a test changes, as a reload does.
    private final class SharedSettings: Sendable {
        let value = Mutex(Settings().audit)
    }

    init() throws {
        let keyPath = directory.path + "/audit-key"
        try RunningKey(.random(), at: 1_795_000_000).install(keyPath)
        log = try AuditLog(path: directory.path + "/audit.log", keyPath: keyPath) { _ in }
        let store = MemoryStore(
            MemoryDisk(), options: StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: "")))
        audited = AuditedStore(
            store.administrator,
            OperatorTrail(log, by: .operator(uid: nil)) { [settings] in settings.value.withLock(\.self) })
        settings.value.withLock { $0.events = .all }
    }

    /// The actions and outcomes of operators in the log.
    private func recorded() throws -> [String] {
        let text = try String(contentsOfFile: directory.path + "/audit.log", encoding: .utf8)
        return text.split(separator: "\n").filter { $0.contains(#""actor":"operator""#) }.map { line in
            ["action", "outcome"].map { name in
                line.split(separator: "\"\(name)\":\"").last.flatMap { $0.split(separator: "\"").first } ?? ""
            }.joined(separator: " ")
        }
    }

    /// What a request replies, as a text.
    private func reply(_ request: some StoreRequest) async throws -> String {
        String(decoding: try OperationsJSON.encode(try await request.answer(audited)), as: UTF8.self)
    }

    private func store(_ ids: String..., writtenAt: Int64? = nil) async throws -> StoreTokens.Reply {
        let tokens = ids.map { StoreTokens.Entry(id: $0, tokenInfo: "1", writtenAt: writtenAt) }
        return try await StoreTokens(tokens: tokens, keepsNewer: true).answer(audited)
    }

    private func page(of request: ListTokens) async throws -> Int {
        try await request.answer(audited).tokens.count
    }

    private let list = ListTokens(after: nil, limit: 10, showsIDs: false)

    @Test func `each token of a command is an event with its own outcome`() async throws {
        #expect(try await store("ann", "ben").stored == 2)
        #expect(try await store("ann", writtenAt: 1).newer == 1)
        #expect(try await reply(FetchToken(id: "ann")) == #"{"token_info":"1"}"#)
        #expect(try await reply(FetchToken(id: "nobody")) == "{}")
        #expect(try await reply(RemoveTokens(ids: ["ann", "nobody"])) == #"{"removed":1}"#)
        #expect(try await reply(RemoveTokens(ids: ["ann"])) == #"{"removed":0}"#)
        #expect(try await page(of: list) == 1)
        _ = try await reply(StatisticsOfStore())
        #expect(
            try recorded() == [
                "store_token ok", "store_token ok", "store_token precondition_failed", "read_token ok",
                "read_token not_found", "remove_token ok", "remove_token not_found", "remove_token not_found",
                "list_tokens ok",
            ])
    }

    @Test func `of a command that is carried out in part, each token has its own outcome`() async throws {
        var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: ""))
        options.queueLimit = 2 * Token.waitingBytes(id: [0], info: [0])
        let small = AuditedStore(MemoryStore(MemoryDisk(), options: options).administrator, audited.trail)
        let tokens = ["a", "b", "c"].map { StoreTokens.Entry(id: $0, tokenInfo: "1") }
        #expect(try await StoreTokens(tokens: tokens).answer(small).failures.keys.map(\.self) == [2])
        let error = await #expect(throws: StoreError.self) {
            try await RemoveTokens(ids: ["a", "b", "c"]).answer(small)
        }
        #expect(error?.cause == .overloaded)
        #expect(try await FetchToken(id: "a").answer(small).tokenInfo == nil)
        #expect(
            try recorded() == [
                "store_token ok", "store_token ok", "store_token failed", "remove_token ok", "remove_token ok",
                "remove_token failed", "read_token not_found",
            ])
    }

    @Test func `the end of all sessions of a user is recorded as by the API, also if there was none`() async throws {
        #expect(try await reply(RemoveSessions(user: "ann")) == #"{"removed":0}"#)
        #expect(try recorded() == ["end_sessions ok"])
    }

    @Test func `an export is recorded where a list is not`() async throws {
        settings.value.withLock { $0.events = .changes }
        _ = try await store("ann")
        #expect(try await page(of: list) == 1)
        let export = ListTokens(after: nil, limit: 10, showsIDs: true, showsTokenInfos: true)
        #expect(try await page(of: export) == 1)
        #expect(try recorded() == ["store_token ok", "export_tokens ok"])
    }

    @Test func `without a log that works nothing is read or begun`() async throws {
        _ = try await store("ann")
        log.close()
        // The failure of the log is noticed at the first event, whose request fails.
        let first = await #expect(throws: StoreError.self) { try await reply(FetchToken(id: "ann")) }
        #expect("\(try #require(first))".contains("cannot record this, and audit.required is on"))
        #expect(log.figures.isFailing)
        let before = log.figures.failures
        let next = await #expect(throws: StoreError.self) { try await store("ben") }
        #expect("\(try #require(next))".hasPrefix("nothing was done: the audit log cannot be written"))
        await #expect(throws: StoreError.self) { try await reply(RemoveTokens(ids: ["ann"])) }
        await #expect(throws: StoreError.self) { try await page(of: list) }
        // Nothing was begun, and so nothing had to be recorded.
        #expect(log.figures.failures == before)
        settings.value.withLock { $0.isRequired = false }
        #expect(try await reply(FetchToken(id: "ann")) == #"{"token_info":"1"}"#)
        #expect(try await reply(FetchToken(id: "ben")) == "{}")
    }

    @Test func `a change that could not be recorded is told of as one that was made`() async throws {
        log.close()
        let error = await #expect(throws: StoreError.self) { try await reply(RemoveTokens(ids: ["a"])) }
        #expect("\(try #require(error))".hasPrefix("the command was carried out, but"))
    }

    @Test func `reads need no log that records only changes`() async throws {
        settings.value.withLock { $0.events = .changes }
        _ = try await store("ann")
        log.close()
        await #expect(throws: StoreError.self) { try await store("ben") }
        #expect(log.figures.isFailing)
        #expect(try await reply(FetchToken(id: "ann")) == #"{"token_info":"1"}"#)
        #expect(try await page(of: list) == 2)
    }
}
