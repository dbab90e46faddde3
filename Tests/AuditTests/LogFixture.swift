import Cryptography
import Glibc
import Synchronization
import System
import TestSupport

@testable import Audit

/// A log in a folder of its own, with a clock that only the test moves.
final class LogFixture: Sendable {
    let directory = TemporaryDirectory()
    let firstKey: AuditFirstKey
    /// Microseconds since 1970.
    private let time = Mutex<Int64>(1_795_000_000_123_456)
    private let reported = Mutex<[String]>([])

    var path: String { directory.path + "/audit.log" }
    var keyPath: String { directory.path + "/audit-key" }

    init() throws {
        firstKey = .random()
        try RunningKey(firstKey, at: 1_795_000_000).install(keyPath)
    }

    func open() throws(AuditError) -> AuditLog {
        try AuditLog(
            path: path, keyPath: keyPath, clock: { [self] in time.withLock(\.self) },
            report: { [self] in note($0) }
        )
    }

    func note(_ notice: AuditNotice) { reported.withLock { $0.append("\(notice)") } }

    func pass(seconds: Int64) { time.withLock { $0 += seconds * 1_000_000 } }

    /// The notices since the last call.
    func takeNotices() -> [String] {
        reported.withLock { notices in
            defer { notices = [] }
            return notices
        }
    }

    /// The lines of a file, without newlines.
    func lines(_ path: String? = nil) -> [String] {
        Self.contents(path ?? self.path).split(separator: "\n").map(String.init)
    }

    static func contents(_ path: String) -> String { TextFile.contents(of: path) ?? "" }

    static func write(_ text: String, to path: String) {
        guard let file = unsafe fopen(path, "w") else { return }
        fputs(text, file)
        fclose(file)
    }

    func verify(_ paths: String..., head: AuditVerifier.Head? = nil) throws -> AuditVerification {
        var verifier = AuditVerifier(firstKey, head: head)
        for path in paths.isEmpty ? [path] : paths { try verifier.read(path) }
        return try verifier.finish()
    }

    /// What a verifier finds in these lines.
    func verify(lines: [String]) throws -> AuditVerification {
        let path = directory.path + "/altered"
        Self.write(lines.map { $0 + "\n" }.joined(), to: path)
        return try verify(path)
    }
}

extension AuditEvent {
    static let stored = AuditEvent(.store, .ok, by: .user, address: "192.0.2.1", requestID: "r-1")
}
