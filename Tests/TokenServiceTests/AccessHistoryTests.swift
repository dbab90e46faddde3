import HTTP
import SQLiteStore
import StoreConformance
import Synchronization
import TestSupport
import Testing
import TokenStore

@testable import TokenService

/// A loop in mode `session`, as far as the store can tell: an actor that hands changes over at once.
private actor AccessActor {
    private var handle: (any StoreHandle)?
    private var router: RequestRouter?

    static func open(
        _ store: any TokenStore, _ answers: AnswerCache, _ sessions: SessionCache
    ) async throws -> AccessActor {
        let actor = AccessActor()
        try await actor.start(store, answers, sessions)
        return actor
    }

    private func start(_ store: any TokenStore, _ answers: AnswerCache, _ sessions: SessionCache) throws {
        let handle = try store.makeHandle { work in Task { await self.run(work) } }
        self.handle = handle
        let service = TokenService(
            settings: TokenService.Settings(), handle: handle, showsVersions: true, answers: answers,
            report: { _, _ in })
        let access = UserAccess(.session(UserAccess.SessionRules(idleTimeout: 1_000)))
        router = RequestRouter(
            service, access: (access, sessions), guardian: AccessGuard(limiter: nil, trail: nil) { _ in }, api: nil)
    }

    private func run(_ work: @Sendable () -> Void) { work() }

    func flush() { handle?.flush() }

    /// The number that is stored for the session's user; nil if the session is refused or nothing is stored.
    func get(_ session: String) async -> Int? {
        // As at the end of a turn: an erasure waits for open reads.
        defer { flush() }
        let body = await body("GET /token?unique_id=\(session)")
        let start = #"{"status":"true","token_info":""#
        return body.hasPrefix(start) ? Int(body.dropFirst(start.count).dropLast(2)) : nil
    }

    /// Whether the number was stored.
    func put(_ number: Int, _ session: String) async -> Bool {
        // Runs as soon as the call below waits, like a loop's end of turn.
        Task { self.flush() }
        return await body("POST /token?unique_id=\(session)&token_info=\(number)") == stored
    }

    private func body(_ line: String) async -> String {
        var reader = RequestReader(limits: RequestLimits())
        reader.bytes = Array("\(line) HTTP/1.1\r\nHost: a\r\n\r\n".utf8)
        guard case .request = reader.next(), let router else { return "" }
        let policy = HTTPSPolicy(mode: .off, trusted: .init(ranges: [], includesUnixSockets: false), publicHost: "")
        let source = RequestSource(peer: policy.peer(address: nil, isTLS: false), https: policy)
        let answer = router.answer(to: reader.request, in: reader.requestBytes, requestID: .none, from: source)
        return String(decoding: await whole(answer).body, as: UTF8.self)
    }
}

/// The token of each user is a register whose values grow, and which is read with sessions that end meanwhile.
@Suite struct AccessHistoryTests {
    private final class Session: Sendable {
        let text: String
        /// The last number that was handed over before the end was acknowledged; nil until then.
        let last = Mutex<Int?>(nil)

        init(_ text: String) { self.text = text }
    }

    /// Goes on until the last writer is done.
    private final class Course: Sendable {
        /// The sessions of each user, the latest last.
        private let sessions: Mutex<[[Session]]>
        private let writers: Atomic<Int>

        init(users: Int) {
            sessions = Mutex(Array(repeating: [], count: users))
            writers = Atomic(users)
        }

        var isOver: Bool { writers.load(ordering: .relaxed) == 0 }

        func noteWriterEnd() { writers.subtract(1, ordering: .relaxed) }

        func add(_ session: Session, of user: Int) { sessions.withLock { $0[user].append(session) } }

        /// One of the latest sessions of a user; nil if there is none yet.
        func session(of user: Int) -> Session? { sessions.withLock { $0[user].suffix(2).randomElement() } }
    }

    private static let (users, rounds) = (3, 10)

    @Test("no answer has a number that was stored after the end of its session was acknowledged")
    func history() async throws {
        let folder = try TemporaryDirectory()
        let directory = folder.path + "/data"
        let store = try SQLiteTokenStore(
            in: try DataDirectory(path: directory, creates: true),
            options: StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: directory)),
            report: { _ in })
        defer { store.close() }
        let (answers, sessions) = (AnswerCache(limit: 1 << 20), SessionCache(limit: 1 << 20))
        store.report(writesTo: ServiceCaches(answers, sessions))
        let users = store.administrator.users
        let course = Course(users: Self.users)
        try await withThrowingTaskGroup { group in
            for number in 0..<Self.users {
                group.addTask {
                    let user = Array("user\(number)".utf8)
                    let loop = try await AccessActor.open(store, answers, sessions)
                    defer { course.noteWriterEnd() }
                    var value = 0
                    for round in 1...Self.rounds {
                        let secret = (0..<SessionSecret.length).map { _ in UInt8.random(in: 0...255) }
                        let new = NewSession(
                            user: user, key: try await users.sessionKey(of: secret), id: try .random(),
                            createdAt: MemoryRow.now, expiresAt: .max, perUser: 20)
                        let made = try await users.createSession(new)
                        let session = Session(String(decoding: SessionSecret.text(of: secret.span), as: UTF8.self))
                        course.add(session, of: number)
                        for _ in 0..<3 {
                            value += 1
                            #expect(await loop.put(value, session.text))
                            #expect(await loop.get(session.text) == value)
                        }
                        switch round % 5 {
                        case 0: #expect(try await users.erase(user).sessions == 1)
                        case 1, 2: #expect(try await users.endSessions(of: user) == 1)
                        default: #expect(try await users.endSession(id: made.id) != nil)
                        }
                        session.last.withLock { $0 = value }
                        #expect(await loop.get(session.text) == nil)
                        value += 1
                        #expect(!(await loop.put(value, session.text)))
                        // What the session's owner must not see any more.
                        let token = Token(id: user, info: Array("\(value)".utf8))
                        _ = try await users.store([(token, nil)], keepsNewer: false)[0].get()
                    }
                }
            }
            for _ in 0..<3 {
                group.addTask {
                    let loop = try await AccessActor.open(store, answers, sessions)
                    while !course.isOver {
                        let number = Int.random(in: 0..<Self.users)
                        if let session = course.session(of: number) {
                            let hadEnded = session.last.withLock { $0 != nil }
                            let value = await loop.get(session.text)
                            #expect(!(hadEnded && value != nil), "a session is answered after its end")
                            if let value, let last = session.last.withLock(\.self) { #expect(value <= last) }
                        }
                        await Task.yield()
                    }
                }
            }
            try await group.waitForAll()
        }
        #expect(sessions.counts.hits > 0 && answers.counts.hits > 0)
    }
}
