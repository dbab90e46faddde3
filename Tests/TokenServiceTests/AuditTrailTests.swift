import Audit
import Glibc
import HTTP
import Synchronization
import System
import TestSupport
import Testing
import TokenStore

@testable import TokenService

/// Answers wait until what they tell is in the audit log.
@Suite struct AuditTrailTests {
    /// An audit log in a folder of its own, and one loop's trail to it.
    private struct Fixture {
        let folder = TemporaryDirectory()
        let trail: AuditTrail
        let harness: AccessHarness
        let session: (text: String, id: SessionID)
        var path: String { folder.path + "/audit.log" }

        /// What the log has the loop do.
        private final class Loop: Sendable {
            let work = Mutex<[@Sendable () -> Void]>([])
            let arrived = Semaphore()
        }

        private let loop = Loop()

        init(_ events: AuditEvents, readsLater: Bool = false) throws {
            try RunningKey(.random(), at: 1_795_000_000).install(folder.path + "/key")
            let log = try AuditLog(path: folder.path + "/audit.log", keyPath: folder.path + "/key", report: { _ in })
            trail = AuditTrail(log, events, isRequired: true) { [loop] work in
                loop.work.withLock { $0.append(work) }
                loop.arrived.signal()
            }
            harness = try AccessHarness(readsLater: readsLater, trail: trail)
            session = try harness.makeSession(of: "anna")
        }

        /// Ends a turn, and waits until its events are written.
        func flush() {
            trail.flush()
            loop.arrived.wait()
            loop.work.withLock { $0.removeFirst() }()
        }

        func begin(_ request: String) -> AccessHarness.Exchange { harness.begin(harness.answer(request)) }

        func read() -> AccessHarness.Exchange { begin("GET /token?unique_id=\(session.text)") }

        func write(_ info: String) -> AccessHarness.Exchange {
            begin("POST /token?token_info=\(info)&unique_id=\(session.text)")
        }

        /// How many lines of the log have all of some words.
        func count(_ words: String...) -> Int {
            let lines = TextFile.contents(of: path)?.split(separator: "\n") ?? []
            return lines.count { line in words.allSatisfy { line.contains("\"\($0)\"") } }
        }
    }

    @Test(arguments: [false, true])
    func `an answer leaves after its line was written, whoever waits for it`(_ readsLater: Bool) throws {
        let fixture = try Fixture(.all, readsLater: readsLater)
        let (write, left) = (fixture.write("1"), fixture.write("2"))
        fixture.harness.finish()
        #expect(write.response == nil)
        // Its client does not learn of it, but it was done.
        left.leave()
        fixture.flush()
        #expect(write.body == stored && left.response == nil)
        #expect(fixture.count("store_token", "ok") == 2)
        let read = fixture.read()
        fixture.harness.finish()
        #expect(read.response == nil && fixture.count("read_token") == 0)
        fixture.flush()
        #expect(read.body == #"{"status":"true","token_info":"2"}"#)
        #expect(fixture.count("read_token", "ok") == 1)
        let refused = fixture.begin("GET /token?unique_id=anna")
        #expect(refused.response == nil)
        fixture.flush()
        #expect(refused.body == unknown)
        #expect(fixture.count("authenticate", "malformed") == 1)
    }

    @Test
    func `a long answer that waits for its line counts all of its bytes, and a short one none`() throws {
        let fixture = try Fixture(.all)
        let write = fixture.write(String(repeating: "x", count: 5_000))
        fixture.harness.finish()
        fixture.flush()
        #expect(write.body == stored)
        for (id, isLong) in [(fixture.session.text, true), ("anna", false)] {
            guard case .later(let pending) = fixture.harness.answer("GET /token?unique_id=\(id)") else {
                Issue.record("the answer does not wait")
                continue
            }
            let answer = fixture.harness.begin(.later(pending))
            fixture.flush()
            let bytes = try #require(answer.body).utf8.count
            #expect(isLong ? pending.bytes >= bytes : pending.bytes == 0)
        }
    }

    @Test
    func `a session that cannot be made is recorded`() throws {
        let fixture = try Fixture(.changes)
        // Its store has no keys for sessions.
        let service = TokenService(MemoryStoreHandle())
        let guardian = AccessGuard(limiter: nil, trail: fixture.trail) { _ in }
        var keys = APIKeys()
        let secret = APIKeySecret.random()
        let digest = APIKeySecret.digest(of: Array(secret.utf8).span)
        try keys.add(
            APIKey(name: "app", scopes: [.sessions], createdAt: 0, expiresAt: nil), digest: #require(digest))
        let api = BackendAPI(service, keys: { [keys] in keys }, sessionMaxAge: 60, sessionsPerUser: 1, guardian)
        let fields = "Host: a\r\nAuthorization: Bearer \(secret)\r\nContent-Length: 15\r\n"
        let reader = RequestReader(reading: "POST /v1/sessions HTTP/1.1\r\n\(fields)\r\n{\"user\":\"anna\"}")
        let answer = fixture.harness.begin(api.answer(to: reader.request, in: reader.requestBytes, .none, from: .any()))
        try #require(answer.response == nil)
        fixture.flush()
        #expect(answer.response?.status == .unavailable && fixture.count("create_session", "failed") == 1)
    }

    @Test
    func `with changes alone, a read waits for nothing`() throws {
        let fixture = try Fixture(.changes)
        #expect(fixture.read().body == unknown)
    }

    @Test
    func `an outcome that cannot be recorded is not told, and no further request begins`() async {
        // In a process of its own: the limit and the signal are the process's.
        await #expect(processExitsWith: .success) {
            let fixture = try Fixture(.changes)
            signal(SIGXFSZ, SIG_IGN)
            var (usual, full) = (rlimit(), rlimit())
            unsafe getrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &usual)
            full = usual
            full.rlim_cur = 1
            let done = fixture.write("1")
            fixture.harness.finish()
            unsafe setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &full)
            fixture.flush()
            let refused = fixture.write("2")
            let isAtOnce = refused.response?.errorCode == .writeFailed
            unsafe setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &usual)
            fixture.harness.finish()
            // The first one was done before the log failed.
            let found = fixture.read().body == #"{"status":"true","token_info":"1"}"#
            let isReported = fixture.harness.failures == [.unrecorded, .unrecorded]
            let isRefused = done.response?.errorCode == .writeFailed
            exit(isRefused && isAtOnce && found && isReported ? EXIT_SUCCESS : EXIT_FAILURE)
        }
    }
}
