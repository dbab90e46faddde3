internal import Foundation

extension TokenSession {
    /// A token is extended once it is older than this (the SDK's `FBTokenExtendThresholdSeconds`).
    private static let refreshAge: TimeInterval = 24 * 3_600
    /// A refresh that is not urgent is not tried more often than this (the SDK's `FBTokenRetryExtendSeconds`).
    private static let refreshPause: TimeInterval = 3_600
    private static let cachingPause: TimeInterval = 60

    /// The token of the open session, refreshed if necessary.
    ///
    /// It is refreshed first if it would expire within the time that it is needed for, or was refused (`invalidate(_:)`). As in the
    /// SDK, it is also refreshed if it is older than a day or its expiration is unknown, and the last try was more than an hour
    /// ago: the present token is then returned, and the new one comes as an event. However many tasks, sessions and processes with
    /// the same local cache ask at once, there is one refresh, whose result all of them get, before it is stored.
    ///
    /// A refresh that ends after the session was closed is dropped.
    ///
    /// - Parameters:
    ///   - duration: How long the token is needed.
    ///   - isForced: Whether a new token is needed in any case.
    ///   - refresh: Obtains a new token; nil: the present one is returned, unless it has expired or was refused.
    /// - Throws: `TokenSessionError.notOpen`, `.closed` and `.expired`; what the refresh throws if the token cannot be used without
    ///   it; `CancellationError`.
    public func token(
        validFor duration: Duration = .seconds(60), forcingRefresh isForced: Bool = false, refresh: Refresh? = nil
    ) async throws -> TokenInformation {
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
        // Its failure is told as an event.
        if isDue(information, at: time), time.timeIntervalSince(lastRefresh) > Self.refreshPause {
            _ = refreshed(information, by: refresh)
        }
        return information
    }

    /// Notes that an API has refused a token, though it has not expired: the next `token(validFor:forcingRefresh:refresh:)`
    /// refreshes it, unless there is another one by then.
    public func invalidate(_ information: TokenInformation) {
        if information.token == currentToken?.token { refused = information.token }
    }

    private func isDue(_ information: TokenInformation, at time: Date) -> Bool {
        guard information.expirationDate != nil, let date = information.refreshDate else { return true }
        return time.timeIntervalSince(date) > Self.refreshAge
    }

    // MARK: - One refresh

    /// What the refresh under way will bring, or one that begins now.
    private func refreshed(_ old: TokenInformation, by refresh: @escaping Refresh) -> Outcome<TokenInformation> {
        if let refreshing { return refreshing }
        let outcome = Outcome<TokenInformation>()
        refreshing = outcome
        lastRefresh = now()
        // Not the caller's task: if that is cancelled, others still wait for it.
        Task { [life] in await perform(refresh, of: old, life, outcome) }
        return outcome
    }

    private func perform(
        _ refresh: @escaping Refresh, of old: TokenInformation, _ life: Int, _ outcome: Outcome<TokenInformation>
    ) async {
        let shared = cache as? any SharedTokenCaching
        // So that the cache has the token that is to be refreshed.
        await writes.finish()
        if cachingError == nil, let other = await shared?.beginRefresh(of: old), accepts(other), self.life == life {
            deliver(other, outcome)
            return
        }
        do {
            var new = try await refresh(old)
            if new.isBlank { throw TokenSessionError.blankToken }
            // The same login goes on, with what the answer to a refresh may leave out.
            new.loginID = old.loginID
            new.refreshToken = new.refreshToken ?? old.refreshToken
            new.idToken = new.idToken ?? old.idToken
            // After the end, the token would be another user's, or that of somebody who has signed out.
            guard self.life == life else {
                await shared?.endRefresh()
                return
            }
            deliver(new, outcome)
            await storeOrResolve(new)
        } catch {
            await shared?.endRefresh()
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

    /// Stores a token after all earlier writes, unless there is another one by then; also if the session was closed meanwhile, as
    /// the token before may be used up.
    func store(_ new: TokenInformation) async throws {
        lastCaching = now()
        do {
            try await writes.run { [broadcast, cache] in
                if let present = broadcast.information, present != new { return }
                try await cache.store(new)
            }
            if currentToken == new { cachingError = nil }
        } catch {
            if currentToken == new {
                cachingError = error
                if case .conflict? = error as? TokenCacheError {} else { broadcast.tell(.cachingFailed(error)) }
            }
            throw error
        }
    }

    /// Stores a token; if another device was faster, its token is the one that counts, or its sign-out.
    func storeOrResolve(_ new: TokenInformation) async {
        let life = life
        do {
            try await store(new)
        } catch TokenCacheError.conflict(let current) where self.life == life && currentToken == new {
            cachingError = nil
            guard let current else { return end(.signedOutElsewhere) }
            if accepts(current) { replace(with: current) }
        } catch {}
    }

    /// Tries once more, without waiting, if the present token could not be cached.
    private func storeAgain() {
        guard cachingError != nil, let information = currentToken,
            now().timeIntervalSince(lastCaching) > Self.cachingPause
        else { return }
        // Not twice at once.
        lastCaching = now()
        Task { [life] in
            // After the end, it would undo a sign-out.
            if self.life == life { await storeOrResolve(information) }
        }
    }
}
