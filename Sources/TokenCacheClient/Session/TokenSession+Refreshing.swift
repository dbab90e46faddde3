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
    /// the last try was more than an hour ago: the call then returns the present token, and the new one comes as an event. All
    /// tasks, sessions and processes with the same local cache share one refresh, and get its result before it is stored.
    ///
    /// A refresh that ends after the session was closed is dropped.
    ///
    /// - Parameters:
    ///   - duration: How long the token is needed.
    ///   - isForced: Whether a new token is needed in any case, by a refresh that begins after this call.
    ///   - refresh: Obtains a new token; without it, the present one is returned, unless it has expired or was refused.
    /// - Throws: `TokenSessionError.notOpen`, `.closed` and `.expired`; what the refresh throws if the token cannot be used without
    ///   it; `CancellationError`.
    public func token(
        validFor duration: Duration = .seconds(60), forcingRefresh isForced: Bool = false, refresh: Refresh? = nil
    ) async throws -> TokenInformation {
        if isForced, refresh != nil, let refreshing {
            let life = life
            _ = try? await refreshing.value()
            try Task.checkCancellation()
            guard self.life == life else { throw TokenSessionError.closed }
        }
        guard state.isOpen, let information = currentToken else { throw TokenSessionError.notOpen(state) }
        storeAgain()
        let time = now()
        let isRefused = information.token == refused
        guard let refresh else {
            if isRefused || information.isExpired(at: time - leeway) { throw TokenSessionError.expired }
            return information
        }
        if isForced || isRefused || information.isExpired(at: time + duration.seconds) {
            return try await refreshed(information, by: refresh).value()
        }
        // An event reports its failure.
        if isDue(information, at: time), abs(time.timeIntervalSince(lastRefresh)) > Self.refreshPause {
            _ = refreshed(information, by: refresh)
        }
        return information
    }

    /// Notes that an API has refused a token that has not expired: the next `token(validFor:forcingRefresh:refresh:)` refreshes it,
    /// unless it has been replaced by then.
    public func invalidate(_ information: TokenInformation) {
        if information.token == currentToken?.token { refused = information.token }
    }

    private func isDue(_ information: TokenInformation, at time: Date) -> Bool {
        guard information.expirationDate != nil, let date = information.refreshDate else { return true }
        // A later date was written before the clock was set back.
        return abs(time.timeIntervalSince(date)) > Self.refreshAge
    }

    // MARK: - One refresh

    /// The outcome of the refresh that is under way, or of one that begins now.
    private func refreshed(_ old: TokenInformation, by refresh: @escaping Refresh) -> Outcome<TokenInformation> {
        if let refreshing { return refreshing }
        let outcome = Outcome<TokenInformation>()
        refreshing = outcome
        lastRefresh = now()
        // In a task of its own: if the caller's is cancelled, others still wait for the outcome.
        Task { [life] in await perform(refresh, of: old, life, outcome) }
        return outcome
    }

    private func perform(
        _ refresh: @escaping Refresh, of old: TokenInformation, _ life: Int, _ outcome: Outcome<TokenInformation>
    ) async {
        // What other sessions and processes share.
        let local = cache as? LocalTokenCache ?? (cache as? LayeredTokenCache)?.local
        // The cache must have the token that is to be refreshed.
        await writes.finish()
        let other = cachingError == nil ? await local?.beginRefresh(of: old) : nil
        // After the session's end, the refresh could use up the refresh token of a user who is still in the cache.
        guard self.life == life else {
            if other == nil { await local?.endRefresh() }
            return
        }
        if let other, accepts(other) { return deliver(other, outcome) }
        do {
            var new = try await refresh(old)
            if new.isBlank { throw TokenSessionError.blankToken }
            // The present one may name more by now than the one that was refreshed.
            new = new.completed(from: currentToken ?? old)
            // After the session's end, its user has signed out or changed.
            guard self.life == life else {
                await local?.endRefresh()
                return
            }
            deliver(new, outcome)
            await storeOrResolve(new)
        } catch {
            await local?.endRefresh()
            guard self.life == life else { return }
            refreshing = nil
            outcome.finish(.failure(error))
            broadcast.tell(.refreshFailed(error))
        }
    }

    private func deliver(_ new: TokenInformation, _ outcome: Outcome<TokenInformation>) {
        replace(with: new)
        refreshing = nil
        outcome.finish(.success(new))
    }

    func replace(with new: TokenInformation) {
        refused = nil
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
            let isStored = try await writes.begin { [self] in
                if let present = broadcast.information, present != new { return false }
                switch cache {
                case let cache as LayeredTokenCache where await isLoginCached: try await cache.storeContinued(new)
                case let cache as LocalTokenCache where await isLoginCached: try await cache.storeContinued(new)
                default: try await cache.store(new)
                }
                return true
            }.value
            if isStored, currentToken?.loginID == new.loginID { isLoginCached = true }
            if currentToken == new { cachingError = nil }
        } catch {
            if currentToken == new {
                cachingError = error
                if case .conflict? = error as? TokenCacheError {} else { broadcast.tell(.cachingFailed(error)) }
            }
            throw error
        }
    }

    /// Stores a token; if another device was faster, takes over its token or its sign-out.
    func storeOrResolve(_ new: TokenInformation) async {
        let life = life
        do {
            try await store(new)
        } catch TokenCacheError.conflict(let current) where self.life == life && currentToken == new {
            cachingError = nil
            guard let current else { return end(.signedOutElsewhere) }
            replace(withOther: current)
        } catch {}
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
