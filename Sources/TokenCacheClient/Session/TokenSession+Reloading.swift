import Foundation

extension TokenSession {
    /// The token from which the session may open.
    func fetch() async throws -> TokenInformation? {
        // A sign-out that has begun counts.
        _ = await clearing?.result
        if let hash = try? await local?.record()?.refused { dead = hash }
        // An event corrects it when the server has answered.
        if let known = await (cache as? LayeredTokenCache)?.fetchKnown(), accepts(known) { return known }
        let found = try await cache.fetch()
        guard let found, !accepts(found), !isLost(found), found.isExpired(at: now() - leeway) else { return found }
        // The server may have another one, and nobody has to log in for want of a network.
        if let cache = cache as? LayeredTokenCache { return try await cache.fetchSettled(insteadOf: found, at: now()) }
        if let obstacle = await obstacle(to: found, at: now()) { throw obstacle }
        return found
    }

    /// Compares the token of an open session with the cache: adopts one that another device has stored, and closes the session
    /// if the user has signed out there.
    ///
    /// A server that has lost the token without saying that it was removed closes nothing.
    ///
    /// - Returns: The new state.
    /// - Throws: What the cache throws, and nothing changes; `TokenSessionError.notOpen`.
    @discardableResult
    public func reload() async throws -> State {
        guard state.isOpen else { throw TokenSessionError.notOpen(state) }
        // What another process of the device has stored shows at once, however slow the server is.
        await takeOverKnown()
        guard let before = currentToken else { return state }
        let cached = try await Outcome { [writes, cache] in
            await writes.finish()
            let found = try await cache.fetchWithBase()
            if case .unreadable(let error) = found.content { throw error }
            // The server may have failed without saying so.
            return found.isUnexplained ? before : found.information
        }.value()
        takeOver(cached, from: before)
        return state
    }

    /// Does the same when the cache has learned something from its server.
    func catchUp() async {
        // These come first.
        _ = try? await opening?.outcome.value()
        _ = try? await refreshing?.value()
        await takeOverKnown()
    }

    private func takeOverKnown() async {
        guard let cache = cache as? LayeredTokenCache else { return }
        await writes.finish()
        guard let before = currentToken, let known = try? await cache.record() else { return }
        takeOver(known.information, from: before)
    }

    private func takeOver(_ cached: TokenInformation?, from before: TokenInformation) {
        // What was fetched is older than a login, a refresh or an end that came meanwhile.
        guard state.isOpen, currentToken == before, isLoginCached else { return }
        guard refreshing == nil, !isUncached else { return }
        if let cached {
            if cached != before { replace(withOther: cached) }
        } else {
            end(.signedOutElsewhere)
        }
    }

    /// Whether the cache lacks the present token; a `LayeredTokenCache` has it in memory even if it could not save it.
    var isUncached: Bool { cachingError != nil && !(cache is LayeredTokenCache) }

    /// Replaces the token by another device's, if that is accepted.
    func replace(withOther other: TokenInformation) {
        guard accepts(other) else { return tellMissing(of: other) }
        cachingError = nil
        replace(with: other)
    }

    /// Tells once that a token of the cache lacks permissions.
    func tellMissing(of other: TokenInformation) {
        let missing = permissions.subtracting(other.permissions)
        if missing.isEmpty || other == rejected { return }
        rejected = other
        broadcast.tell(.permissionsMissing(missing))
    }

    // MARK: - Which tokens count

    func accepts(_ cached: TokenInformation) -> Bool {
        isForThisApp(cached) && permissions.isSubset(of: cached.permissions)
    }

    /// Whether a token is accepted if it has the required permissions.
    func isForThisApp(_ cached: TokenInformation) -> Bool {
        !isLost(cached) && (appID == nil || cached.appID == nil || cached.appID == appID)
            && (canRefresh(cached) || !cached.isExpired(at: now() - leeway)) && !cached.isOfLimitedLogin
    }

    func canRefresh(_ information: TokenInformation) -> Bool {
        refresh != nil && information.refreshToken != nil
    }

    /// Whether only the user can go on from this token.
    func isLost(_ information: TokenInformation) -> Bool {
        isDead(information) || isRefused(information) && !canRefresh(information)
            || givenUp == information.datedHash
    }

    /// Whether the token was not refused and has not expired.
    func isUsable(_ information: TokenInformation) -> Bool {
        !isRefused(information) && !information.isExpired(at: now() - leeway)
    }
}
