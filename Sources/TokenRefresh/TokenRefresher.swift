#if TokenRefresh
package import Audit
import Glibc
import Synchronization
import System
import TokenStore

/// Exchanges tokens at the provider for new ones; each token by one exchange at a time, whoever asks for it.
///
/// An exchange has three steps, each durable before the next begins: the token is marked (`RefreshableToken.Mark`), the provider is
/// asked, and its answer takes the token's place. Both writes depend on the version (`If-Match`): a login, a deletion or an erasure
/// in between wins. As long as the mark is there, no server sends the refresh token again, because many providers end a login whose
/// refresh token is used twice (RFC 9700, section 4.14). If the process dies between the provider's answer and its commit, the answer
/// is lost.
///
/// Any thread.
package final class TokenRefresher: Sendable {
    let provider: RefreshProvider
    /// How long a request waits for a token that has expired.
    let patience: Duration
    private let handle: WaitingHandle
    private let state: Mutex<RefreshState>
    private let audit = Mutex<(log: AuditLog, isRequired: @Sendable () -> Bool)?>(nil)
    private let report: @Sendable (StoreEvent) -> Void
    /// The name of this process in marks.
    private let name = "server-" + String(UInt64.random(in: .min ... .max), radix: 16)

    init(
        _ provider: RefreshProvider, patience: Duration, handle: WaitingHandle,
        report: @escaping @Sendable (StoreEvent) -> Void
    ) {
        (self.provider, self.patience, self.handle, self.report) = (provider, patience, handle, report)
        state = Mutex(RefreshState(isRepeatable: provider.kind == .facebook))
    }

    /// Records exchanges in an audit log from now on.
    ///
    /// - Parameter isRequired: Says whether no exchange begins while the log cannot be written.
    package func record(in log: AuditLog, isRequired: @escaping @Sendable () -> Bool) {
        audit.withLock { $0 = (log, isRequired) }
    }

    var metrics: RefreshMetrics {
        state.withLock {
            RefreshMetrics(counts: $0.counts, failures: $0.failures, fault: $0.fault?.rawValue)
        }
    }

    /// Lets no further exchange begin, and waits for those under way, for at most as long as one may take.
    func finish() {
        state.withLock { $0.isDraining = true }
        let end = MonotonicTime.now + ProviderCall.timeLimit + Duration.seconds(3)
        while state.withLock({ $0.exchanging > 0 }), .now < end { usleep(10_000) }
    }

    // MARK: - Requests

    /// Refreshes a token that is due, unless that is not possible now.
    ///
    /// - Parameter wake: For a request that waits because the token has expired: called once, on any thread, when the token should be
    ///   read again, unless this returns advice. Nil if no request waits.
    /// - Returns: What to tell a client whose token has expired; nil if its request waits.
    func refresh(_ stored: StoredToken, wake: RefreshState.Wake? = nil) -> RefreshAdvice? {
        if let (log, isRequired) = audit.withLock(\.self), log.figures.isFailing, isRequired() { return .later }
        let (decision, number) = state.withLock { state -> (RefreshState.Decision, Int?) in
            let decision = state.decide(about: stored, waits: wake != nil, at: .now)
            if case .advise = decision { return (decision, nil) }
            return (decision, wake.map { state.join(stored.id, $0) })
        }
        switch decision {
        case .advise(let advice): return advice
        case .exchange: begin(stored)
        case .watch:
            Task {
                await watch(stored)
                end(stored.id, .later)
            }
        case .join: break
        }
        if let number {
            Task { [patience] in
                try? await Task.sleep(for: patience)
                state.withLock { $0.leave(stored.id, number) }?(.later)
            }
        }
        return nil
    }

    /// Exchanges a token, and afterwards the next one in the queue.
    private func begin(_ stored: StoredToken) {
        Task {
            let (advice, other) = await exchange(stored)
            let (next, givenUp) = state.withLock { $0.noteEndOfExchange() }
            if let next { begin(next) }
            for id in givenUp { end(id, .later) }
            if let other { await watch(other) }
            end(stored.id, advice)
        }
    }

    private func end(_ id: [UInt8], _ advice: RefreshAdvice) {
        for wake in state.withLock({ $0.end(id) }) { wake(advice) }
    }

    /// Waits until another process has stored something else, or no request waits any more.
    private func watch(_ stored: StoredToken) async {
        while state.withLock({ $0.isAwaited(stored.id) }) {
            try? await Task.sleep(for: .milliseconds(250))
            if case .success(let found) = await read(stored.id), found?.version != stored.version { break }
        }
    }

    // MARK: - An exchange

    /// Exchanges a token.
    ///
    /// - Returns: What to tell a client if the token it reads then has expired as well, and the token that another process is exchanging.
    private func exchange(_ stored: StoredToken) async -> (RefreshAdvice, other: StoredToken?) {
        guard let request = provider.request(for: stored.token) else {
            note(.failed(.client, retryAfter: nil), for: stored)
            return (.later, nil)
        }
        let marked: TokenVersion
        let mark = stored.token.marked(by: name)
        switch await put(mark, of: stored.id, over: stored.version, writtenAt: stored.writtenAt, attempts: 2) {
        case .stored(let version): marked = version
        // Another server or a device was faster, or there is another token.
        case .changed(let found):
            let other = found.flatMap {
                StoredToken($0.info, $0.version, of: stored.id, writtenAt: $0.writtenAt, provider)
            }
            return (.later, other?.token.mark == .underWay ? other : nil)
        case .failed:
            state.withLock { $0.hold(stored, at: .now) }
            return (.later, nil)
        }
        return (await exchange(stored, marked, request), nil)
    }

    /// Exchanges a token that is marked.
    private func exchange(
        _ stored: StoredToken, _ marked: TokenVersion, _ request: RefreshProvider.Request
    ) async -> RefreshAdvice {
        // A token of Facebook's is dated a second before: a user who has left the app since has not come back by the exchange.
        let date = provider.kind == .facebook ? ((try? await handle.unixTime) ?? Int64(time(nil))) - 1 : nil
        let outcome = ProviderOutcome(await ProviderCall.response(to: request), of: provider.kind)
        note(outcome, for: stored)
        switch outcome {
        case .tokens(let tokens):
            await store(tokens, for: stored, over: marked, writtenAt: date)
            return .later
        case .refused:
            // It is dead only if nobody has stored another one meanwhile.
            guard case .stored = await spend(stored, over: marked) else { return .later }
            state.withLock { $0.counts.refused += 1 }
            record(.denied("invalid_grant"), stored)
            return .login
        case .unknown where !state.withLock(\.mayRepeat):
            _ = await spend(stored, over: marked)
            state.withLock { $0.counts.lost += 1 }
            record(.failed, stored)
            return .login
        case .unknown, .failed, .rejected:
            _ = await mark(stored, over: marked, \.unmarked)
            return .later
        }
    }

    private func spend(_ stored: StoredToken, over version: TokenVersion) async -> Put {
        await mark(stored, over: version, \.markedAsSpent)
    }

    /// Replaces this process's mark, also if a client has stored the same tokens once more, with which the mark stays.
    private func mark(
        _ stored: StoredToken, over marked: TokenVersion, _ text: (RefreshableToken) -> [UInt8]
    ) async -> Put {
        var (token, version, writtenAt) = (stored.token, marked, stored.writtenAt)
        while true {
            let outcome = await put(text(token), of: stored.id, over: version, writtenAt: writtenAt, attempts: 10)
            guard case .changed(let found?) = outcome,
                let same = RefreshableToken(found.info, writtenAt: found.writtenAt, by: provider),
                same.isSame(as: stored.token), same.isMarked(by: name)
            else { return outcome }
            (token, version, writtenAt) = (same, found.version, found.writtenAt)
        }
    }

    /// Stores the provider's answer, or drops it if the user has logged in anew or was removed.
    ///
    /// - Parameter date: As for `StoreHandle.store`.
    private func store(
        _ tokens: ProviderTokens, for stored: StoredToken, over marked: TokenVersion, writtenAt date: Int64?
    ) async {
        var (token, version) = (stored.token, marked)
        while true {
            let text = token.refreshed(by: tokens, at: Int64(time(nil)))
            // Tried for long while the store fails, because the former refresh token may be dead.
            switch await put(text, of: stored.id, over: version, writtenAt: date, attempts: 300) {
            case .stored:
                state.withLock { $0.counts.refreshed += 1 }
                return record(.ok, stored)
            case .failed:
                state.withLock { $0.counts.lost += 1 }
                report(.own(.fault, "a refreshed token could not be stored and is lost: its user has to log in again"))
                return record(.failed, stored)
            case .changed(let found):
                // A client has written the same login once more, such as with other permissions.
                if let found, let same = RefreshableToken(found.info, writtenAt: found.writtenAt, by: provider),
                    same.isSame(as: stored.token)
                {
                    (token, version) = (same, found.version)
                    continue
                }
                return state.withLock { $0.counts.superseded += 1 }
            }
        }
    }

    private func note(_ outcome: ProviderOutcome, for stored: StoredToken) {
        let (isNews, fault) = state.withLock { ($0.note(outcome, for: stored, at: .now), $0.fault) }
        guard isNews else { return }
        guard let fault else { return report(.own(.note, "tokens are refreshed again")) }
        let reason =
            switch fault {
            case .client: ": the provider does not accept refresh.client_id and its secret, or that cannot be read"
            case .unreachable: ": the host of refresh.url cannot be reached, or has no valid certificate"
            case .rejected: ": the provider rejects them without a reason, as some do if the secret is wrong"
            case .unreadable: ": what answers at refresh.url is no token endpoint"
            default: ""
            }
        report(
            .own(
                .warning,
                "tokens cannot be refreshed (\(fault.rawValue))\(reason); one is tried again after pauses of up to five minutes"
            ))
    }

    private func record(_ outcome: AuditEvent.Outcome, _ stored: StoredToken) {
        guard let log = audit.withLock(\.self)?.log else { return }
        let user = log.makeHasher().pseudonym(.user, of: stored.id.span)
        log.submit([AuditEvent(.refresh, outcome, by: .server, user: user)], isRetried: true)
    }

    // MARK: - The store

    private enum Put {
        case stored(TokenVersion)
        /// Something else is there, or nothing.
        case changed(WaitingHandle.Found?)
        case failed
    }

    /// Replaces a version of a token.
    ///
    /// - Parameters:
    ///   - writtenAt: As for `StoreHandle.store`.
    ///   - attempts: How often it is tried while the store fails, with pauses of a second.
    private func put(
        _ info: [UInt8], of id: [UInt8], over version: TokenVersion, writtenAt: Int64?, attempts: Int
    ) async -> Put {
        for attempt in 0..<attempts {
            if attempt > 0 { try? await Task.sleep(for: .seconds(1)) }
            do {
                return .stored(
                    try await handle.outcome { (handle, completion) in
                        handle.store(
                            info, under: id, writtenAt: writtenAt, if: WriteCondition(match: .oneOf([version])),
                            completion: completion)
                    })
            } catch {
                // It may have been stored nevertheless.
                guard case .success(let found) = await read(id) else { continue }
                guard let found else { return .changed(nil) }
                if found.info == info { return .stored(found.version) }
                if found.version != version { return .changed(found) }
            }
        }
        return .failed
    }

    private func read(_ id: [UInt8]) async -> Result<WaitingHandle.Found?, StoreError> {
        do {
            return .success(try await handle.find(id))
        } catch {
            return .failure(error)
        }
    }
}
#endif
