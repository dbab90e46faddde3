import Cryptography
import TokenStore

/// Conditional writes and sessions.
extension ConformanceHandle {
    /// The outcome of a change, which is handed over at once.
    private func outcome<Value: Sendable>(
        of change: (any StoreHandle, Completion<Value>) -> Void
    ) async throws -> Value {
        let handle = try opened
        Task { self.flush() }
        let outcome = await withCheckedContinuation { continuation in
            change(handle, Completion { continuation.resume(returning: $0) })
        }
        return try outcome.get()
    }

    package func version(of id: String) async throws -> TokenVersion? {
        guard case .found(_, _, let version) = try await fetch(Array(id.utf8)) else { return nil }
        return version
    }

    @discardableResult
    package func put(
        _ value: String, under id: String, if match: WriteCondition.Match, session: SessionKey? = nil
    ) async throws -> TokenVersion {
        let condition = WriteCondition(match: match, session: session)
        return try await outcome { $0.store(Array(value.utf8), under: Array(id.utf8), if: condition, completion: $1) }
    }

    @discardableResult
    package func remove(_ id: String, if match: WriteCondition.Match = .any) async throws -> Bool {
        try await outcome { $0.remove(Array(id.utf8), if: WriteCondition(match: match), completion: $1) }
    }

    /// Begins two writes that are committed together; their outcomes in their order.
    package func putTwo(
        _ values: (String, String), under id: String, if match: WriteCondition.Match
    ) async throws -> [Result<TokenVersion, StoreError>] {
        let handle = try opened
        return await withCheckedContinuation { continuation in
            var outcomes: [Result<TokenVersion, StoreError>] = []
            for value in [values.0, values.1] {
                let completion = Completion<TokenVersion> {
                    outcomes.append($0)
                    if outcomes.count == 2 { continuation.resume(returning: outcomes) }
                }
                handle.store(
                    Array(value.utf8), under: Array(id.utf8), if: WriteCondition(match: match), completion: completion)
            }
            handle.flush()
        }
    }

    /// Begins writes that are handed over together; their outcomes in the order of the tokens.
    package func putAll(_ tokens: [(id: String, value: [UInt8])]) async throws -> [Result<TokenVersion, StoreError>] {
        try await outcomes(of: tokens) { handle, token, complete in
            handle.store(token.value, under: Array(token.id.utf8), if: WriteCondition(), completion: complete)
        }
    }

    /// Begins reads that are handed over together; what they find in the order of the ids.
    package func fetchAll(_ ids: [String], upTo limit: Int = .max) async throws -> [Result<Fetched, StoreError>] {
        try await fetchAll(ids.map { ($0, nil) }, upTo: limit)
    }

    /// The same for reads of which some depend on sessions.
    package func fetchAll(
        _ reads: [(id: String, session: SessionKey?)], upTo limit: Int
    ) async throws -> [Result<Fetched, StoreError>] {
        try await outcomes(of: reads) { handle, read, complete in
            do throws(StoreError) {
                let found = try handle.fetch(Array(read.id.utf8), upTo: limit, if: read.session) { complete }
                if let found { complete(.success(found)) }
            } catch {
                complete(.failure(error))
            }
        }
    }

    /// The outcomes of requests that are handed over together, at least one.
    private func outcomes<Request, Value: Sendable>(
        of requests: [Request],
        begin: (any StoreHandle, Request, Completion<Value>) -> Void
    ) async throws -> [Result<Value, StoreError>] {
        let handle = try opened
        return await withCheckedContinuation { continuation in
            var outcomes: [Int: Result<Value, StoreError>] = [:]
            for (number, request) in requests.enumerated() {
                let completion = Completion<Value> { outcome in
                    outcomes[number] = outcome
                    guard outcomes.count == requests.count else { return }
                    continuation.resume(returning: requests.indices.compactMap { outcomes[$0] })
                }
                begin(handle, request, completion)
            }
            handle.flush()
        }
    }

    // MARK: - Sessions

    package func key(_ secret: String) throws -> SessionKey {
        try opened.sessionKey(of: Array(secret.utf8).span)
    }

    /// Makes a session, now and for an hour unless told otherwise.
    @discardableResult
    package func begin(
        _ secret: String, of user: String, createdAt: Int64 = MemoryRow.now, lasting: Int64 = 3_600, perUser: Int = 20
    ) async throws -> (id: SessionID, ended: Int) {
        let session = UserSession(
            id: try .random(), user: Array(user.utf8), createdAt: createdAt, expiresAt: createdAt + lasting)
        let key = try key(secret)
        return (session.id, try await outcome { $0.createSession(session, key, perUser: perUser, completion: $1) })
    }

    package func find(_ secret: String) async throws -> UserSession? {
        let handle = try opened
        defer { handle.flush() }
        Task { self.flush() }
        let key = try key(secret)
        let outcome: Result<FoundSession, StoreError> = await withCheckedContinuation { continuation in
            do throws(StoreError) {
                let found = try handle.findSession(key) { Completion { continuation.resume(returning: $0) } }
                if let found { continuation.resume(returning: .success(found)) }
            } catch {
                continuation.resume(returning: .failure(error))
            }
        }
        guard case .found(let session) = try outcome.get() else { return nil }
        return session
    }

    package func end(_ id: SessionID) async throws -> EndedSession? {
        try await outcome { $0.endSession(id: id, completion: $1) }
    }

    package func endAll(of user: String) async throws -> Int {
        try await outcome { $0.endSessions(of: Array(user.utf8), completion: $1) }
    }

    package func list(_ user: String) async throws -> [UserSession] {
        // As at the end of a turn: nothing stays open.
        defer { flush() }
        return try await outcome { $0.listSessions(of: Array(user.utf8), completion: $1) }
    }

    @discardableResult
    package func erase(_ user: String) async throws -> Erasure {
        try await outcome { $0.erase(Array(user.utf8), completion: $1) }
    }

    package func use(_ secret: String, at time: Int64) throws {
        try opened.noteUse(of: try key(secret), at: time)
    }
}
