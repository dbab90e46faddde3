import Synchronization
import TokenStore

/// What tests ask of a store, mostly with texts as ids and users.
extension WaitingHandle {
    /// Opens a handle, which has a thread of its own as far as the store can tell.
    package static func open(_ store: any TokenStore) async throws -> WaitingHandle {
        let opened = WaitingHandle { (deliver) throws(StoreError) in try store.makeHandle(deliver: deliver) }
        try await opened.flush()
        return opened
    }

    // MARK: - Tokens

    package func fetch(_ id: [UInt8], upTo limit: Int = .max, if session: SessionKey?) async throws -> Fetched {
        try await outcome { (handle, completion) throws(StoreError) in
            let found = try handle.fetch(id, upTo: limit, if: session) { completion }
            if let found { completion(.success(found)) }
        }
    }

    package func get(_ id: String) async throws -> String? {
        try await fetch(Array(id.utf8)).map { String(decoding: $0, as: UTF8.self) }
    }

    package func version(of id: String) async throws -> TokenVersion? {
        guard case .found(_, _, _, let version) = try await fetch(Array(id.utf8), if: nil) else { return nil }
        return version
    }

    @discardableResult
    package func put(
        _ value: String, under id: String, if match: WriteCondition.Match = .any, session: SessionKey? = nil
    ) async throws -> TokenVersion {
        try await put(Array(value.utf8), under: Array(id.utf8), if: WriteCondition(match: match, session: session))
    }

    @discardableResult
    package func put(
        _ value: [UInt8], under id: [UInt8], if condition: WriteCondition = WriteCondition()
    ) async throws -> TokenVersion {
        try await outcome { $0.store(value, under: id, if: condition, completion: $1) }
    }

    @discardableResult
    package func remove(_ id: String, if match: WriteCondition.Match = .any) async throws -> Bool {
        try await outcome { $0.remove(Array(id.utf8), if: WriteCondition(match: match), completion: $1) }
    }

    /// Begins writes that are handed over together; their outcomes in the order of the tokens.
    package func putAll(
        _ tokens: [(id: String, value: [UInt8])], if match: WriteCondition.Match = .any
    ) async throws -> [Result<TokenVersion, StoreError>] {
        await outcomes(
            of: tokens, size: { _ in 0 },
            begin: { handle, token, completion in
                handle.store(
                    token.value, under: Array(token.id.utf8), if: WriteCondition(match: match), completion: completion)
            })
    }

    /// Begins reads that are handed over together; what they find in the order of the ids.
    package func fetchAll(_ ids: [String], upTo limit: Int = .max) async throws -> [Result<Fetched, StoreError>] {
        try await fetchAll(ids.map { ($0, nil) }, upTo: limit)
    }

    /// The same for reads of which some depend on sessions.
    package func fetchAll(
        _ reads: [(id: String, session: SessionKey?)], upTo limit: Int
    ) async throws -> [Result<Fetched, StoreError>] {
        await outcomes(
            of: reads, size: { _ in 0 },
            begin: { handle, read, completion in
                do throws(StoreError) {
                    let found = try handle.fetch(Array(read.id.utf8), upTo: limit, if: read.session) { completion }
                    if let found { completion(.success(found)) }
                } catch {
                    completion(.failure(error))
                }
            })
    }

    // MARK: - Writes in two steps

    /// Writes that were begun.
    package final class Begun: Sendable {
        private let list = Mutex<[Int]>([])

        /// The numbers of the writes that have ended, once for each completion, in the order of their outcomes.
        package var ended: [Int] { list.withLock(\.self) }

        fileprivate func note(_ number: Int) { list.withLock { $0.append(number) } }
    }

    /// Begins writes without handing them over; a turn of the handle may do that at any time from then on.
    ///
    /// - Returns: The writes, and the numbers of those that have ended at once.
    package func begin(
        _ writes: [(id: String, value: String)], session: SessionKey? = nil
    ) throws -> (writes: Begun, endedAtOnce: [Int]) {
        let (handle, begun) = (try handle, Begun())
        for (number, write) in writes.enumerated() {
            handle.store(
                Array(write.value.utf8), under: Array(write.id.utf8), if: WriteCondition(session: session),
                completion: Completion { _ in begun.note(number) })
        }
        return (begun, begun.ended)
    }

    /// Hands over what was begun.
    package func flush() throws { try handle.flush() }

    // MARK: - Sessions

    package func sessionKey(of secret: [UInt8]) throws -> SessionKey { try handle.sessionKey(of: secret.span) }

    package func key(_ secret: String) throws -> SessionKey { try sessionKey(of: Array(secret.utf8)) }

    /// Makes a session, now and for an hour unless told otherwise.
    @discardableResult
    package func begin(
        _ secret: String, of user: String, createdAt: Int64 = MemoryRow.now, lasting: Int64 = 3_600, perUser: Int = 20
    ) async throws -> (id: SessionID, ended: Int) {
        let session = UserSession(
            id: .random(), user: Array(user.utf8), createdAt: createdAt, expiresAt: createdAt + lasting)
        let key = try key(secret)
        return (session.id, try await outcome { $0.createSession(session, key, perUser: perUser, completion: $1) })
    }

    package func find(_ secret: String) async throws -> UserSession? {
        let key = try key(secret)
        let found: FoundSession = try await outcome { (handle, completion) throws(StoreError) in
            if let found = try handle.findSession(key, orLater: { completion }) { completion(.success(found)) }
        }
        guard case .found(let session) = found else { return nil }
        return session
    }

    package func endSession(id: SessionID) async throws -> EndedSession? {
        try await outcome { $0.endSession(id: id, completion: $1) }
    }

    package func endSessions(of user: [UInt8]) async throws -> Int {
        try await outcome { $0.endSessions(of: user, completion: $1) }
    }

    package func list(_ user: String) async throws -> [UserSession] {
        try await outcome { $0.listSessions(of: Array(user.utf8), completion: $1) }
    }

    @discardableResult
    package func erase(_ user: String) async throws -> Erasure {
        try await outcome { $0.erase(Array(user.utf8), completion: $1) }
    }

    package func use(_ secret: String, at time: Int64) throws { try handle.noteUse(of: key(secret), at: time) }
}
