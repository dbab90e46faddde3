import Audit
import Foundation
import Settings
import StoreConformance
import Synchronization
import TestSupport
import Testing
import TokenStore

@testable import Operations

@Suite struct AuditedAdministratorTests {
    private let directory: TemporaryDirectory
    private let log: AuditLog
    private let administrator: AuditedAdministrator
    private let settings = SharedSettings()

    /// Settings that a test changes, as a reload does.
    private final class SharedSettings: Sendable {
        let value = Mutex(Settings().audit)
    }

    init() throws {
        directory = try TemporaryDirectory()
        let keyPath = directory.path + "/audit-key"
        try RunningKey(.random(), at: 1_795_000_000).install(keyPath)
        log = try AuditLog(path: directory.path + "/audit.log", keyPath: keyPath) { _ in }
        let store = MemoryStore(
            MemoryDisk(), options: StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: "")))
        administrator = AuditedAdministrator(
            store.administrator, OperatorTrail(log) { [settings] in settings.value.withLock(\.self) })
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

    private func store(_ ids: String..., writtenAt: Int64? = nil) async -> [Result<Void, StoreError>] {
        await administrator.store(
            ids.map { (Token(id: Array($0.utf8), info: [1]), writtenAt) }, keepsNewer: true)
    }

    @Test func `each token of a command is an event with its own outcome`() async throws {
        #expect(await store("ann", "ben").allSatisfy { (try? $0.get()) != nil })
        let older = await store("ann", writtenAt: 1)
        #expect(throws: StoreError.newer) { try older[0].get() }
        #expect(try await administrator.fetch(Array("ann".utf8)) == [1])
        #expect(try await administrator.fetch(Array("nobody".utf8)) == nil)
        #expect(try await administrator.remove([Array("ann".utf8), Array("nobody".utf8)]) == [true, false])
        #expect(try await administrator.remove([Array("ann".utf8)]) == [false])
        #expect(try await administrator.page(after: nil, limit: 10).entries.count == 1)
        _ = try await administrator.statistics()
        #expect(
            try recorded() == [
                "store_token ok", "store_token ok", "store_token precondition_failed", "read_token ok",
                "read_token not_found", "remove_token ok", "remove_token not_found", "remove_token not_found",
                "list_tokens ok",
            ])
    }

    @Test func `an export is recorded where a list is not`() async throws {
        settings.value.withLock { $0.events = .changes }
        _ = await store("ann")
        #expect(try await administrator.page(after: nil, limit: 10).entries.count == 1)
        #expect(try await administrator.exportPage(after: nil, limit: 10).entries.count == 1)
        #expect(try recorded() == ["store_token ok", "export_tokens ok"])
    }

    @Test func `without a log that works nothing is read or begun`() async throws {
        _ = await store("ann")
        log.close()
        // The log's state becomes known with the first event that fails, whose result nobody gets.
        await #expect(throws: StoreError.self) { try await administrator.fetch(Array("ann".utf8)) }
        #expect(log.figures.isFailing)
        let before = log.figures.failures
        #expect(await store("ben").allSatisfy { (try? $0.get()) == nil })
        await #expect(throws: StoreError.self) { try await administrator.remove([Array("ann".utf8)]) }
        await #expect(throws: StoreError.self) { try await administrator.page(after: nil, limit: 1) }
        // Nothing was begun, and so nothing had to be recorded.
        #expect(log.figures.failures == before)
        settings.value.withLock { $0.isRequired = false }
        #expect(try await administrator.fetch(Array("ann".utf8)) == [1])
        #expect(try await administrator.fetch(Array("ben".utf8)) == nil)
    }

    @Test func `a change that could not be recorded is told of as one that was made`() async throws {
        log.close()
        let error = await #expect(throws: StoreError.self) { try await administrator.remove([[1]]) }
        #expect("\(try #require(error))".hasPrefix("the command was carried out, but"))
    }

    @Test func `reads need no log that records only changes`() async throws {
        settings.value.withLock { $0.events = .changes }
        log.close()
        _ = await store("ann")
        #expect(log.figures.isFailing)
        #expect(try await administrator.fetch(Array("ann".utf8)) == [1])
        #expect(try await administrator.page(after: nil, limit: 1).entries.count == 1)
    }
}
