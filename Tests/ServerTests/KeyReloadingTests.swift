import Audit
import Logging
import Settings
import Synchronization
import System
import TestSupport
import Testing
import TokenService

@testable import Server

/// Keeps the lines of a log.
final class LogLines: Sendable {
    let texts = Mutex<[String]>([])

    var logger: Logger { Logger(label: "test") { _ in Handler(lines: self) } }

    private struct Handler: LogHandler {
        let lines: LogLines
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.trace

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            lines.texts.withLock { $0.append("\(event.message)") }
        }
    }
}

struct KeyReloadingTests {
    private let folder = TemporaryDirectory()

    /// Adds a key to a file.
    private func add(_ number: Int, to path: String) throws {
        try APIKeys.change(path, begins: true) { keys in
            let key = APIKey(name: "key\(number)", scopes: [.sessions], createdAt: 5, expiresAt: nil)
            try keys.add(key, digest: [UInt8](repeating: UInt8(number), count: 32))
        }
    }

    @Test func `tasks that read a changed file at once log and record each change once`() async throws {
        let path = folder.path + "/api-keys"
        try add(0, to: path)
        var settings = Settings()
        settings.access.apiKeysFile = path
        let lines = LogLines()
        let logger = lines.logger
        let (log, runningKey) = (folder.path + "/audit.log", folder.path + "/audit-key")
        try RunningKey(.random(), at: 1_795_000_000).install(runningKey)
        let audit = try AuditLog(path: log, keyPath: runningKey, report: { _ in })
        let access = try AccessResources(settings, audit: audit)
        for number in 1...100 {
            try add(number, to: path)
            await withDiscardingTaskGroup { group in
                for _ in 0..<4 { group.addTask { await access.reloadChangedFiles(logger, rereads: true) } }
            }
        }
        let expected = (1...100).map { "the API keys have changed: added key\($0); there are \($0 + 1) now" }
        let told = lines.texts.withLock(\.self)
        #expect(told == expected)
        audit.close()
        let recorded = try #require(TextFile.contents(of: log)).split(separator: "\n")
            .filter { $0.contains("add_api_key") }
        #expect(recorded.count == 100)
        #expect(zip(1..., recorded).allSatisfy { $1.contains("\"key\($0)\"") })
    }
}
