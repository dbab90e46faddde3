import Foundation

extension TokenSession {
    /// A token is extended once it is older than this (the SDK's `FBTokenExtendThresholdSeconds`).
    private static let refreshAge: TimeInterval = 24 * 3_600
    /// A refresh that is not urgent is not tried more often than this (the SDK's `FBTokenRetryExtendSeconds`).
    private static let refreshPause: TimeInterval = 3_600
    private static let cachingPause: TimeInterval = 60

    /// The token of the open session, refreshed if necessary.
    ///
    /// The call waits for a refresh if the token would expire within the time for which it is needed, or was refused
    /// (`invalidate(_:)`). As in the SDK, a token is also refreshed if it is older than a day or its expiration is unknown, and
    /// the last try was more than an hour ago: the call then returns the present token, and the new one comes as an event.
    ///
    /// All tasks, sessions and processes with the same local cache share one refresh, and get its result before it is stored. So do
    /// all devices, if the server has versions (token-cache in every mode but `open`): one asks the provider, and the others wait for its
    /// result, for a minute if it dies meanwhile. A token with a refresh token is refreshed only if the server answers, as another
    /// device may have used that: many providers end the login then. Without versions, two devices can still do so at the same time.
    ///
    /// The result of a refresh that ends after the session was closed is stored for the next one.
    ///
    /// While `open` looks for a token, the call waits for it.
    ///
    /// - Parameters:
    ///   - duration: How long the token is needed.
    ///   - isForced: Whether a new token is needed in any case, by a refresh that begins after this call.
    ///   - refresh: Obtains a new token; it takes precedence over the `refresh` of the session. If there is neither, and the present
    ///     token has expired or was refused, the cache is asked for another one, which its server may have refreshed. If the provider
    ///     has refused for good, the closure has to throw `TokenSessionError.invalidGrant`.
    /// - Throws: `TokenSessionError.notOpen`, `.closed` and `.expired`; what an `open` under way throws; if the token cannot be used
    ///   without a refresh, what the refresh or the server's cache throws; `CancellationError`.
    public func token(
        validFor duration: Duration = .seconds(60), forcingRefresh isForced: Bool = false, refresh: Refresh? = nil
    ) async throws -> TokenInformation {
        // A closure that refreshes does not wait for its own refresh.
        if let own = Self.ownRefresh, own === refreshing, let currentToken { return currentToken }
        // An app's first request may come while the session opens. The user is not waited for, as the login may end in this call.
        if let opening, !state.isOpen { try await opening.search.value() }
        let refresh = refresh ?? self.refresh
        if isForced, refresh != nil, let refreshing {
            let life = life
            _ = try? await refreshing.value()
            try Task.checkCancellation()
            guard self.life == life else { throw TokenSessionError.closed }
        }
        guard state.isOpen, let information = currentToken else { throw TokenSessionError.notOpen(state) }
        storeAgain()
        let time = now()
        guard let refresh else { return try await reloadedIfExpired(information, at: time) }
        if isForced || isRefused(information) || information.isExpired(at: time + duration.seconds) {
            return try await refreshed(information, for: duration, isForced: isForced, by: refresh).value()
        }
        // An event reports its failure.
        if isDue(information, at: time), abs(time.timeIntervalSince(lastRefresh)) > Self.refreshPause {
            _ = refreshed(information, for: duration, isForced: false, by: refresh)
        }
        return information
    }

    /// The present token; if it has expired or was refused, the cache may have another one, as servers can refresh tokens.
    private func reloadedIfExpired(_ information: TokenInformation, at time: Date) async throws -> TokenInformation {
        let isUsable = isUsable(information)
        let isReloaded = isUncached || abs(time.timeIntervalSince(lastReload)) < Self.cachingPause
        if isUsable, isReloaded || !information.isExpired(at: time) { return information }
        // What could not be cached is newer than what the cache has.
        if isUncached { throw giveUp(information) }
        lastReload = time
        let life = life
        var failure: (any Error)?
        do { try await reload() } catch { failure = error }
        try Task.checkCancellation()
        guard self.life == life, let found = currentToken else {
            // A server may keep no tokens that have expired.
            throw information.isExpired(at: time) ? TokenSessionError.expired : .closed
        }
        if self.isUsable(found) { return found }
        // Nobody has to log in for want of a network.
        if failure == nil { failure = await obstacle(to: found, at: time) }
        throw failure ?? giveUp(found)
    }

    /// Why it is unknown what the server has in place of a token, if that may be known later.
    func obstacle(to information: TokenInformation, at time: Date) async -> (any Error)? {
        if let cache = cache as? RemoteTokenCache { return cache.obstacle(to: information, at: time) }
        return await (cache as? LayeredTokenCache)?.obstacle(to: information, at: time)
    }

    /// The error for a token in whose place there is no other, so that only the user can go on.
    private func giveUp(_ information: TokenInformation) -> TokenSessionError {
        givenUp = information.datedHash
        return .expired
    }

    /// Notes that an API has refused a token that has not expired: the next `token(validFor:forcingRefresh:refresh:)` refreshes it,
    /// unless it has been replaced by then.
    ///
    /// If the session cannot refresh it by itself, or has done so less than a minute ago because the one before was refused, no
    /// session of this device opens from it any more: `open` asks the user, unless the token was extended, which may keep its text.
    public func invalidate(_ information: TokenInformation) {
        let hash = information.datedHash
        guard hash == currentToken?.datedHash else { return }
        refused = hash
        // An API that refuses a token right after its refresh would refuse the next one too.
        if refreshedAfterRefusal == hash, abs(now().timeIntervalSince(lastRefresh)) < 60 { givenUp = hash }
        if isLost(information) { keepRefused(information) }
    }

    func isRefused(_ information: TokenInformation) -> Bool { refused == information.datedHash }

    func isDead(_ information: TokenInformation) -> Bool { dead == information.datedHash }

    /// Notes on this device, in the order of the writes, that no session may open from a token.
    private func keepRefused(_ information: TokenInformation) {
        let hash = information.datedHash
        _ = writes.begin { [cache] in
            switch cache {
            case let cache as LayeredTokenCache: try await cache.change(isKept: true) { $0?.refused = hash }
            case let cache as LocalTokenCache: try await cache.update { $0?.refused = hash }
            default: break
            }
        }
    }

    private func isDue(_ information: TokenInformation, at time: Date) -> Bool {
        guard information.expirationDate != nil, let date = information.refreshDate else { return true }
        // A later date was written before the clock was set back.
        return abs(time.timeIntervalSince(date)) > Self.refreshAge
    }

    // MARK: - One refresh

    /// A refresh that was asked for.
    private struct Refreshing {
        let refresh: Refresh
        let duration: Duration
        let isForced: Bool
        /// The session's life in which it began.
        let life: Int
        /// Stands for this device; in another life of the session it is another one, as the exchange of the one before may go on.
        var device: String
        let outcome = Outcome<TokenInformation>()
    }

    /// The outcome of the refresh that is under way, or of one that begins now.
    func refreshed(
        _ old: TokenInformation, for duration: Duration, isForced: Bool, by refresh: @escaping Refresh
    ) -> Outcome<TokenInformation> {
        if let refreshing { return refreshing }
        let asked = Refreshing(
            refresh: refresh, duration: duration, isForced: isForced, life: life, device: "\(id)-\(life)")
        refreshing = asked.outcome
        lastRefresh = now()
        // In a task of its own: if the caller's is cancelled, others still wait for the outcome.
        refreshWork = Outcome { await self.perform(asked, of: old) }
        return asked.outcome
    }

    private func perform(_ asked: Refreshing, of old: TokenInformation) async {
        var asked = asked
        let lock = await local?.lockRefreshes { [life = asked.life] in await self.life != life }
        defer { lock?.release() }
        if let lock { asked.device = lock.device }
        // The cache must have the token that is to be refreshed.
        await writes.finish()
        do {
            if let begun = try await begin(asked, of: old) { try await exchange(begun, asked) }
        } catch  where life == asked.life {
            refreshing = nil
            asked.outcome.finish(.failure(error))
            broadcast.tell(.refreshFailed(error))
        } catch {}
    }

    /// Looks for a newer token, and keeps other devices from the exchange.
    ///
    /// - Parameter mustKnow: Whether it is an error in any case if that cannot be known.
    /// - Returns: What is to be exchanged; nil if the session has ended, or another device was faster.
    private func begin(_ asked: Refreshing, of held: TokenInformation, mustKnow: Bool = false) async throws
        -> VersionedToken?
    {
        var old = held
        while life == asked.life {
            let alone = VersionedToken(content: .token(old), base: .anything)
            // Nobody else has a token that could not be cached.
            if isUncached { return alone }
            let begun: VersionedToken
            do {
                begun = try await cache.beginRefresh(of: old, by: asked.device, clock: clock) {
                    await self.life != asked.life
                }
            } catch is RefreshLease.IsSpent {
                if life == asked.life {
                    dead = old.datedHash
                    keepRefused(old)
                }
                throw TokenSessionError.invalidGrant
            } catch  where !mustKnow && (cache is LocalTokenCache || old.refreshToken == nil) {
                // A refresh token may have been used by another device meanwhile: then the provider would end the login.
                return life == asked.life ? alone : nil
            }
            guard life == asked.life else {
                await cache.endRefresh(begun)
                break
            }
            switch begun.content {
            case .none where isLoginCached: end(.signedOutElsewhere)
            case .token(let found) where found.token == old.token: return begun
            case .token(let found) where found.loginID == old.loginID || accepts(found):
                if accepts(found), !asked.isForced, !found.isExpired(at: now() + asked.duration.seconds) {
                    deliver(found, asked.outcome)
                    return nil
                }
                old = found
            default: return alone
            }
        }
        return nil
    }

    private func exchange(_ begun: VersionedToken, _ asked: Refreshing) async throws {
        guard let old = begun.information else { return }
        var new: TokenInformation
        do {
            // The provider's refusal was final.
            if isDead(old) { throw TokenSessionError.invalidGrant }
            new = try await Self.$ownRefresh.withValue(asked.outcome) { try await asked.refresh(old) }
            try new.check()
        } catch TokenSessionError.invalidGrant where !isDead(old) {
            return try await resolveInvalidGrant(begun, old, asked)
        } catch {
            await cache.endRefresh(begun)
            throw error
        }
        // The session's may name more by now than the one that was refreshed.
        let present = currentToken.flatMap { $0.token == old.token ? $0 : nil }
        new = new.completed(from: present ?? old)
        exchanged = old.token
        if isRefused(old) { refreshedAfterRefusal = new.datedHash }
        if life == asked.life {
            deliver(new, asked.outcome)
            await storeOrResolve(new)
        } else {
            await storeAfterEnd(new, in: begun)
        }
    }

    /// Looks once more for a newer token before the login counts as dead: another device, whose client knows no leases, may have
    /// been faster, and may just be storing its token.
    private func resolveInvalidGrant(_ begun: VersionedToken, _ old: TokenInformation, _ asked: Refreshing) async throws
    {
        if !(cache is LocalTokenCache) { try await clock.sleep(for: .seconds(2)) }
        let found: VersionedToken?
        do {
            found = try await begin(asked, of: old, mustKnow: true)
        } catch {
            await cache.endRefresh(begun)
            throw error
        }
        if let found, found.information?.token == old.token {
            dead = old.datedHash
            keepRefused(old)
        }
        if let found { try await exchange(found, asked) }
    }

    private func deliver(_ new: TokenInformation, _ outcome: Outcome<TokenInformation>) {
        replace(with: new)
        refreshing = nil
        outcome.finish(.success(new))
    }

    func replace(with new: TokenInformation) {
        broadcast.move(to: .openTokenExtended, new)
        broadcast.tell(.renewed(new))
    }

    // MARK: - Storing

    /// Stores a token after all earlier writes, unless it has been replaced by then; also if the session was closed meanwhile, as
    /// the previous token may not work any more.
    ///
    /// If the cache has had the login before, it must still have it.
    func store(_ new: TokenInformation) async throws {
        lastCaching = now()
        do {
            // If the waiting task is cancelled, the token is stored nevertheless, and the outcome counts.
            let isStored = try await writes.begin { [self, exchanged] in
                if let present = broadcast.information, present != new { return false }
                switch cache {
                case let cache as LayeredTokenCache where await isLoginCached: try await cache.storeContinued(new)
                case let cache as LocalTokenCache where await isLoginCached: try await cache.storeContinued(new)
                default:
                    do {
                        try await cache.store(new)
                    } catch TokenCacheError.conflict(let current?) where current.token == exchanged {
                        // With another device's lease.
                        try await cache.store(new)
                    }
                }
                return true
            }.value
            if isStored, currentToken?.loginID == new.loginID { isLoginCached = true }
            if currentToken == new { cachingError = nil }
        } catch {
            if currentToken == new {
                cachingError = error
                if case .conflict? = error as? TokenCacheError {
                } else {
                    // The cache keeps it in memory and sends it, although this device could not save it.
                    if cache is LayeredTokenCache { isLoginCached = true }
                    broadcast.tell(.cachingFailed(error))
                }
            }
            throw error
        }
    }

    /// Stores a token; if another device was faster, takes over its token or its sign-out.
    ///
    /// - Parameter replacesRejected: Whether the user was asked for the permissions that the other token lacks.
    func storeOrResolve(_ new: TokenInformation, replacesRejected: Bool = false) async {
        let life = life
        do {
            try await store(new)
        } catch TokenCacheError.conflict(let current) where self.life == life && currentToken == new {
            cachingError = nil
            guard let current else { return end(.signedOutElsewhere) }
            guard replacesRejected, current == rejected else { return replace(withOther: current) }
            isLoginCached = false
            await storeLogin(new)
        } catch {}
    }

    /// Stores the result of a refresh that ended after the session, as the token before may work no longer, unless the login
    /// has ended as well.
    private func storeAfterEnd(_ new: TokenInformation, in begun: VersionedToken) async {
        _ = try? await writes.run { [cache] in
            switch cache {
            // Of a user who was forgotten meanwhile, nothing is known here. If the token names its login, the server knows its end.
            case let cache as LayeredTokenCache:
                if new.loginID == nil, try await cache.record() == nil { return }
                try await cache.storeContinued(new)
            case let cache as LocalTokenCache: try await cache.storeContinued(new)
            case let cache as RemoteTokenCache where begun.lease != nil:
                _ = try await cache.replace(begun.base, with: new)
            default: break
            }
        }
    }

    /// Begins to store the present token again, if it could not be cached.
    private func storeAgain() {
        guard cachingError != nil, let information = currentToken,
            abs(now().timeIntervalSince(lastCaching)) > Self.cachingPause
        else { return }
        // Now, so that the next call does not begin it as well.
        lastCaching = now()
        Task { [life] in
            // After the session's end, this would undo a sign-out.
            if self.life == life { await storeOrResolve(information) }
        }
    }
}
