#if TokenRefresh
import Glibc
import System
import TokenStore

/// A loop's handle of the store, through which tokens are refreshed when they are read.
///
/// A token that is not due yet is returned with the moment at which it will be due as its end. The answer cache drops it then, so a GET
/// that the cache answers costs nothing more than without refreshing. Everything but `fetch` and `store` is passed on unchanged.
final class RefreshingHandle: StoreHandle, @unchecked Sendable {
    // Unchecked: it belongs to its thread; other threads use it only through `deliver`, which runs closures on its thread.

    private let inner: any StoreHandle
    private let refresher: TokenRefresher
    /// Whether nobody is given a refresh token; see `store`.
    private let hidesRefreshTokens: Bool
    private let deliver: WaitingHandle.Deliver
    /// Reads that wait for a refresh, by their numbers.
    private var waiting: [Int: (read: Read, completion: Completion<Fetched>)] = [:]
    private var number = 0

    private struct Read {
        let id: [UInt8]
        let limit: Int
        let session: SessionKey?
    }

    init(
        _ inner: any StoreHandle, _ refresher: TokenRefresher, hidesRefreshTokens: Bool,
        deliver: @escaping WaitingHandle.Deliver
    ) {
        (self.inner, self.refresher, self.deliver) = (inner, refresher, deliver)
        self.hidesRefreshTokens = hidesRefreshTokens
    }

    /// How long the answer cache keeps a token that is due, in seconds, while it is being refreshed.
    private static let dueTime: Int64 = 2

    // MARK: - Reading

    func fetch(
        _ id: [UInt8], upTo limit: Int, if session: SessionKey?, orLater makeCompletion: () -> Completion<Fetched>
    ) throws(StoreError) -> Fetched? {
        // A provider's tokens are not so long that they are answered in pieces, and commands do not refresh.
        guard limit < .max || hidesRefreshTokens else {
            return try inner.fetch(id, upTo: limit, if: session, orLater: makeCompletion)
        }
        let read = Read(id: id, limit: limit, session: session)
        guard let fetched = try fetch(read, advice: nil, makeCompletion) else { return nil }
        guard let answer = answer(to: read, fetched, advice: nil) else {
            waiting[number] = (read, makeCompletion())
            return nil
        }
        return answer
    }

    private func fetch(
        _ read: Read, advice: RefreshAdvice?, _ makeCompletion: () -> Completion<Fetched>
    ) throws(StoreError) -> Fetched? {
        try inner.fetch(read.id, upTo: read.limit, if: read.session) {
            let completion = makeCompletion()
            return Completion(for: Waiter(completion)) { [self] outcome in
                proceed(read, outcome, advice: advice, completion)
            }
        }
    }

    private final class Waiter<Value>: OutcomeWaiter {
        private let completion: Completion<Value>

        init(_ completion: Completion<Value>) {
            self.completion = completion
        }

        var isWaiting: Bool { completion.isAwaited }
        var shared: SharedWaiter? { completion.shared }
    }

    private func proceed(
        _ read: Read, _ outcome: Result<Fetched, StoreError>, advice: RefreshAdvice?, _ completion: Completion<Fetched>
    ) {
        guard case .success(let fetched) = outcome else { return completion(outcome) }
        if let answer = answer(to: read, fetched, advice: advice) { return completion(.success(answer)) }
        waiting[number] = (read, completion)
    }

    /// What to answer to a read now; nil if it waits for a refresh, under the number `number`.
    ///
    /// - Parameter advice: The advice for a token that has expired; nil if the read may wait for it instead.
    private func answer(to read: Read, _ fetched: Fetched, advice: RefreshAdvice?) -> Fetched? {
        guard case .found(let info, let writtenAt, let until, let version) = fetched else { return fetched }
        let shown = hidesRefreshTokens ? RefreshableToken.withoutRefreshTokens(info) : info
        // Token infos have dates of the wall clock, so the time of writing is converted to it. If the row seems to have been written in
        // the future, the clock was wrong when it was written; the token then counts as old, so that it is refreshed soon.
        let (now, storeTime) = (Int64(time(nil)), inner.unixTime)
        let obtainedAt = writtenAt > storeTime + 86_400 ? 0 : writtenAt &- (storeTime - now)
        guard read.limit < .max,
            let stored = StoredToken(
                info, version, of: read.id, writtenAt: writtenAt, obtainedAt: obtainedAt, refresher.provider),
            let dueAt = stored.token.dueAt
        else { return .found(shown, writtenAt: writtenAt, until: until, version: version) }
        guard dueAt <= now else {
            return .found(shown, writtenAt: writtenAt, until: min(until, dueAt), version: version)
        }
        guard stored.token.hasExpired(at: now) else {
            _ = refresher.refresh(stored)
            return .found(shown, writtenAt: writtenAt, until: min(until, now + Self.dueTime), version: version)
        }
        if let advice { return .unrefreshed(shown, version: version, advice) }
        number += 1
        let immediate = refresher.refresh(stored) { [deliver, self, number] advice in
            deliver { [self] in resume(number, advice) }
        }
        return immediate.map { .unrefreshed(shown, version: version, $0) }
    }

    /// Reads again after a refresh; the session may also have ended meanwhile.
    private func resume(_ number: Int, _ advice: RefreshAdvice) {
        guard let (read, completion) = waiting.removeValue(forKey: number), completion.isAwaited else { return }
        do {
            guard let fetched = try fetch(read, advice: advice, { completion }) else { return }
            proceed(read, .success(fetched), advice: advice, completion)
        } catch {
            completion(.failure(error))
        }
    }

    var timeLimit: Duration? { inner.timeLimit.map { $0 + refresher.patience } }

    // MARK: - Writing

    /// How long a write may wait for its turn; after that, its client may have stored something else through another server.
    private var writeTime: Duration { inner.timeLimit ?? .seconds(1) }

    /// Stores a token info.
    ///
    /// A client that is not given refresh tokens sends none back. So the stored refresh token stays if the access token is the one
    /// that is stored; with another access token, it is another login. And a client that stores its token unconditionally, such as at
    /// each of its starts, does not know of the mark. So the mark stays as long as the tokens are the same: otherwise another server
    /// would exchange them a second time.
    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], writtenAt: Int64?, if condition: WriteCondition,
        completion: Completion<TokenVersion>
    ) {
        guard !condition.keepsNewer, let new = PostedToken(tokenInfo, hides: hidesRefreshTokens, refresher.provider),
            new.lacksRefreshToken || !Self.knowsMark(condition)
        else {
            return inner.store(tokenInfo, under: id, writtenAt: writtenAt, if: condition, completion: completion)
        }
        complete(new, under: id, writtenAt, condition, .now + Nanoseconds(writeTime), completion)
    }

    /// Whether a writer knows of the mark, as it names the version that it replaces, or says that there is none.
    private static func knowsMark(_ condition: WriteCondition) -> Bool {
        switch condition.match {
        case .oneOf, .missing: true
        case .any, .exists, .noneOf: false
        }
    }

    /// Stores a token with what was added to the one that is stored, if it is of the same login.
    ///
    /// It reads first, and what it writes depends on that version: if something else is stored meanwhile, it begins anew.
    private func complete(
        _ new: PostedToken, under id: [UInt8], _ writtenAt: Int64?, _ condition: WriteCondition,
        _ deadline: MonotonicTime, _ completion: Completion<TokenVersion>
    ) {
        func write(over found: Result<Fetched, StoreError>) {
            guard .now < deadline else { return completion(.failure(.overloaded(.unanswered(limit: writeTime)))) }
            var (info, match) = (new.info, condition.match)
            switch found {
            case .success(.found(let stored, _, _, let version)):
                match = match.holds(for: version) ? .oneOf([version]) : .oneOf([])
                info = new.completed(from: stored, knowsMark: Self.knowsMark(condition)) ?? info
            case .success: match = match.holds(for: nil) ? .missing : .oneOf([])
            // A row that does not open is replaced.
            case .failure(.sealing): break
            case .failure(let error): return completion(.failure(error))
            }
            inner.store(
                info, under: id, writtenAt: writtenAt, if: WriteCondition(match: match, session: condition.session),
                completion: Completion(for: Waiter(completion)) { [self] outcome in
                    guard case .failure(.preconditionFailed(let current)) = outcome, completion.isAwaited,
                        condition.match.holds(for: current)
                    else { return completion(outcome) }
                    complete(new, under: id, writtenAt, condition, deadline, completion)
                })
        }
        do {
            let found = try inner.fetch(id, upTo: .max, if: nil) {
                Completion(for: Waiter(completion)) { write(over: $0) }
            }
            if let found { write(over: .success(found)) }
        } catch {
            write(over: .failure(error))
        }
    }

    // MARK: - Passed on

    var unixTime: Int64 { inner.unixTime }
    var descriptor: Int32? { inner.descriptor }
    func proceed() { inner.proceed() }
    func flush() { inner.flush() }

    func remove(_ id: [UInt8], if condition: WriteCondition, completion: Completion<Bool>) {
        inner.remove(id, if: condition, completion: completion)
    }

    func sessionKey(of secret: Span<UInt8>) throws(StoreError) -> SessionKey { try inner.sessionKey(of: secret) }

    func findSession(
        _ key: SessionKey, orLater makeCompletion: () -> Completion<FoundSession>
    ) throws(StoreError) -> FoundSession? {
        try inner.findSession(key, orLater: makeCompletion)
    }

    func noteUse(of key: SessionKey, at unixTime: Int64) { inner.noteUse(of: key, at: unixTime) }

    func createSession(_ session: UserSession, _ key: SessionKey, perUser: Int, completion: Completion<Int>) {
        inner.createSession(session, key, perUser: perUser, completion: completion)
    }

    func endSession(id: SessionID, completion: Completion<EndedSession?>) {
        inner.endSession(id: id, completion: completion)
    }

    func endSessions(of user: [UInt8], completion: Completion<Int>) {
        inner.endSessions(of: user, completion: completion)
    }

    func listSessions(of user: [UInt8], completion: Completion<[UserSession]>) {
        inner.listSessions(of: user, completion: completion)
    }

    func erase(_ user: [UInt8], completion: Completion<Erasure>) { inner.erase(user, completion: completion) }
}
#endif
