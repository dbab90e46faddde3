internal import Foundation

extension Session {
    /// A token is extended once it is older than this (the SDK's `FBTokenExtendThresholdSeconds`).
    private static let refreshAge: TimeInterval = 24 * 3_600
    /// A refresh that is not urgent is not tried more often than this (the SDK's `FBTokenRetryExtendSeconds`).
    private static let refreshPause: TimeInterval = 3_600
    private static let cachingPause: TimeInterval = 60

    /// The token of the open session, refreshed if necessary.
    ///
    /// It is refreshed if it would expire within the time that it is needed for. It is also refreshed, as in the SDK, if it is
    /// older than a day or its expiration is unknown, and the last try was more than an hour ago; if that fails, the present
    /// token is returned. However many tasks ask at once, there is one refresh, whose result all of them get.
    ///
    /// A refresh that ends after the session was closed is dropped.
    ///
    /// - Parameters:
    ///   - duration: How long the token is needed.
    ///   - refresh: Obtains a new token; nil: the present one is returned, unless it has expired.
    /// - Throws: `SessionError.notOpen`, `.closed` and `.expired`; what the refresh throws if the token would expire too soon;
    ///   `CancellationError`.
    public func token(validFor duration: Duration = .seconds(60), refresh: Refresh? = nil) async throws
        -> TokenInformation
    {
        guard state.isOpen, let information else { throw SessionError.notOpen(state) }
        storeAgain()
        let time = now()
        let expiresTooSoon = information.isExpired(at: time + duration.seconds)
        guard let refresh else {
            if information.isExpired(at: time - leeway) { throw SessionError.expired }
            return information
        }
        // One that is under way brings a token soon.
        if expiresTooSoon { return try await refreshed(information, by: refresh) }
        guard isDue(information, at: time), waiting != nil || time.timeIntervalSince(lastRefresh) > Self.refreshPause
        else { return information }
        do {
            return try await refreshed(information, by: refresh)
        } catch let error where !(error is SessionError) && !(error is CancellationError) {
            return self.information ?? information
        }
    }

    private func isDue(_ information: TokenInformation, at time: Date) -> Bool {
        guard information.expirationDate != nil, let date = information.refreshDate else { return true }
        return time.timeIntervalSince(date) > Self.refreshAge
    }

    // MARK: - One refresh

    private func refreshed(_ old: TokenInformation, by refresh: @escaping Refresh) async throws -> TokenInformation {
        let outcome = Outcome<TokenInformation>()
        if waiting != nil {
            waiting?.append(outcome)
        } else {
            waiting = [outcome]
            lastRefresh = now()
            // Not the caller's: if that is cancelled, others still wait for it.
            Task { await perform(refresh, of: old) }
        }
        return try await outcome.value()
    }

    private func perform(_ refresh: @escaping Refresh, of old: TokenInformation) async {
        let result: Result<TokenInformation, any Error>
        do {
            let new = try await refresh(old)
            result = new.isBlank ? .failure(SessionError.blankToken) : .success(new)
        } catch {
            result = .failure(error)
        }
        // After the end, nobody waits: the token would be another user's, or that of somebody who has signed out.
        guard state.isOpen else { return }
        if case .success(let new) = result {
            replace(with: new)
            do {
                try await store(new)
            } catch TokenCacheError.conflict(let current) {
                resolve(current)
            } catch {}
        }
        guard state.isOpen else { return }
        let waiting = waiting ?? []
        self.waiting = nil
        for outcome in waiting {
            switch result {
            case .success(let new): outcome.finish(.success(information ?? new))
            // Not as the refresh threw it: a cancellation of its own is not one of those who wait.
            case .failure(let error): outcome.finish(.failure(error))
            }
        }
    }

    func replace(with new: TokenInformation) {
        information = new
        broadcast.move(to: .openTokenExtended)
    }

    /// Another device was faster: its token is the one that counts, or its sign-out.
    private func resolve(_ current: TokenInformation?) {
        guard state.isOpen else { return }
        cachingError = nil
        if let current {
            if accepts(current) { information = current }
        } else {
            end(clearing: false)
        }
    }

    // MARK: - Storing

    /// Stores a token after all earlier writes, unless the session has been closed by then.
    func store(_ new: TokenInformation) async throws {
        lastCaching = now()
        do {
            try await writes.run { [weak self, cache] in
                guard await self?.information == new else { return }
                try await cache.cache(new)
            }
            if information == new { cachingError = nil }
        } catch {
            if information == new { cachingError = error }
            throw error
        }
    }

    /// Tries once more, without waiting, if the present token could not be cached.
    private func storeAgain() {
        guard cachingError != nil, let information, now().timeIntervalSince(lastCaching) > Self.cachingPause else {
            return
        }
        Task {
            do {
                try await store(information)
            } catch TokenCacheError.conflict(let current) {
                resolve(current)
            } catch {}
        }
    }
}
