public import Foundation

/// The life of a login: opens from a cached token or by asking the user, keeps the token fresh, ends, and can be opened again.
///
/// An app needs one object as long as it runs. Usable from any task. A cancelled task stops waiting at once, except
/// for the storing of what `adopt`, `extend` and `updatePermissions` have taken over.
public actor TokenSession {
    /// Obtains a token by asking the user.
    ///
    /// It throws `CancellationError` if the user gives up: the session is then as it was before.
    public typealias Login = @Sendable () async throws -> TokenInformation
    /// Obtains a new token in exchange for one that is still valid.
    ///
    /// `TokenInformation.refreshed(token:expiresIn:refreshToken:now:)` makes it of the service's answer. Permissions, ids and
    /// whatever else it does not name stay as they were.
    public typealias Refresh = @Sendable (TokenInformation) async throws -> TokenInformation

    let cache: any TokenCaching
    let permissions: Set<String>
    let appID: String?
    let leeway: TimeInterval
    let refresh: Refresh?
    let now: @Sendable () -> Date
    let clock: any Clock<Duration>
    let broadcast = SessionBroadcast()
    /// Runs the writes to the cache one after the other, so that a sign-out comes after a token that is being stored.
    let writes = Turns()
    /// The clearing of the cache by the last sign-out.
    var clearing: Task<Void, any Error>?

    /// Why the present token could not be cached, which is tried again; nil if it is cached.
    ///
    /// With a `LayeredTokenCache` that means on this device: see its `remoteError` for the server.
    public internal(set) var cachingError: (any Error)?
    /// Whether the cache has had the present login: if it is not there any more, it has ended.
    var isLoginCached = false

    /// Counts up when the session ends, or the search for a token is given up: the results of earlier operations are then dropped.
    var life = 0
    /// The call of `open` or `load` that is under way.
    private(set) var opening: Opening?
    /// The outcome of the refresh that is under way.
    var refreshing: Outcome<TokenInformation>?
    /// The end of all work on the last refresh, which may outlive the session.
    var refreshWork: Outcome<Void>?
    /// Stands for this session among those that share a token.
    let id = UUID().uuidString
    var lastRefresh = Date.distantPast
    var lastCaching = Date.distantPast
    var lastReload = Date.distantPast
    /// The `datedHash` of a token that an API has refused.
    var refused: String?
    /// The `datedHash` of the token that a refresh has brought in place of a refused one.
    var refreshedAfterRefusal: String?
    /// The `datedHash` of a token for which the app got `TokenSessionError.expired`, or that was refused right after its refresh.
    var givenUp: String?
    /// The last token of another device whose permissions did not suffice, so that an event tells it once.
    var rejected: TokenInformation?
    /// The token that the last refresh has used up.
    var exchanged: String?
    /// The `datedHash` of a token from which no session may open: the provider will never refresh it again, or an API had refused it
    /// before the session was opened.
    var dead: String?

    /// A session that is not open yet.
    ///
    /// - Parameters:
    ///   - cache: Where the user's token is kept.
    ///   - permissions: What a cached token must allow to be used.
    ///   - appID: The app that a cached token must have been issued to; nil accepts any. A token without an app is accepted too.
    ///   - leeway: How far ahead the device's clock may be before a cached token counts as expired.
    ///   - refresh: Obtains a new token, for each call of `token(validFor:forcingRefresh:refresh:)` that has no `refresh` of its own.
    ///     With it, the session opens from an expired token too, if that has a refresh token, and refreshes it.
    ///   - clock: Measures waits.
    ///   - now: The device's clock.
    public init(
        cache: any TokenCaching, permissions: Set<String> = [], appID: String? = nil, leeway: Duration = .seconds(300),
        refresh: Refresh? = nil, clock: any Clock<Duration> = ContinuousClock(),
        now: @escaping @Sendable () -> Date = { Date() }
    ) {
        self.cache = cache
        self.permissions = permissions
        self.appID = appID
        self.leeway = leeway.seconds
        self.refresh = refresh
        self.now = now
        self.clock = clock
        (cache as? LayeredTokenCache)?.report { [weak self] report in
            switch report {
            case .failed(let error): self?.broadcast.tell(.cachingFailed(error))
            case .learned: Task { [weak self] in await self?.catchUp() }
            }
        }
        (cache as? LayeredTokenCache)?.waitBeforeSending { [weak self] in await self?.finishWrites() }
    }

    /// Waits for all writes that have begun; on the actor, as a write begins in the same turn in which its token is handed out.
    private func finishWrites() async {
        await writes.finish()
    }

    /// What other sessions and processes of this device share.
    var local: LocalTokenCache? { cache as? LocalTokenCache ?? (cache as? LayeredTokenCache)?.local }

    /// The present state.
    public nonisolated var state: State { broadcast.state }

    /// The token of an open session, or the one that was loaded; nil otherwise.
    ///
    /// Unlike `token(validFor:forcingRefresh:refresh:)`, never refreshed.
    public nonisolated var currentToken: TokenInformation? { broadcast.information }

    /// The present state and all later ones, until the object is released; each call returns a new stream.
    public nonisolated var states: AsyncStream<State> { broadcast.states() }

    /// The events from now on, until the object is released; each call returns a new stream.
    public nonisolated var events: AsyncStream<Event> { broadcast.events() }

    // MARK: - Opening

    /// Looks for a cached token, without opening: `created` becomes `createdTokenLoaded` if one is accepted.
    ///
    /// - Parameter patience: As for `open`.
    /// - Returns: The new state.
    /// - Throws: What the cache throws, or `TokenCacheError.timedOut`: it is then unknown whether there is a token that is accepted,
    ///   and the state does not change. So it is if this device's has expired and the server cannot be asked, or says that it will
    ///   refresh the token later.
    @discardableResult
    public func load(patience: Duration = .seconds(2)) async throws -> State {
        if state == .createdTokenLoaded || state.isOpen { return state }
        return try await join { life in try await self.load(patience, life) }
    }

    /// Opens the session: from the cached token if there is one that is accepted, and otherwise by the login.
    ///
    /// A cached token is accepted if it is for this app, has all permissions that are asked for, was not refused, and has not expired
    /// or can be refreshed by the closure of the session. Otherwise it stays in the cache. Of a `LayeredTokenCache`, the device's token
    /// opens the session at once. If the server has another one or a sign-out, the session takes it over or ends as soon as it answers,
    /// with an event.
    ///
    /// An open session stays as it is, unless there is a login and only a login helps: its token was refused and cannot be refreshed,
    /// or `token(validFor:forcingRefresh:refresh:)` has thrown `TokenSessionError.expired`. Further calls while one is under way wait
    /// for that one and throw its error, and try again only if it has not opened the session, or has failed without asking the
    /// user, whom they may ask.
    ///
    /// - Parameters:
    ///   - patience: How long to wait for the cache: longer than a `LayeredTokenCache` waits for its server before it answers from
    ///     the device.
    ///   - loginIfUnknown: Whether to ask the user also if it is unknown whether there is a token, for example during an outage. That
    ///     is right when the user has tapped a login button; the new token is sent later. With false the error is thrown, which is
    ///     for an app that asks without being told to, such as at its start: a user without a network is not signed out.
    ///   - login: Asks the user; if nil, the session opens only from a cached token, and otherwise stays `created`.
    /// - Returns: The new state: `open`, or `created` if there is neither an accepted token nor a login.
    /// - Throws: If the user is not asked, what the cache throws, or `TokenCacheError.timedOut`, and the state does not change. What
    ///   the login throws, with the state `closedLoginFailed`, or `created` if that is a `CancellationError`. `TokenSessionError`.
    ///   A token that cannot be cached is no error, but see `cachingError`.
    @discardableResult
    public func open(patience: Duration = .seconds(2), loginIfUnknown: Bool = true, login: Login? = nil) async throws
        -> State
    {
        if state.isOpen {
            guard login != nil, let currentToken, isLost(currentToken) else { return state }
            end(.closed)
        }
        let asks = loginIfUnknown && login != nil
        if let opening {
            do {
                let state = try await wait(for: opening)
                if state.isOpen { return state }
            } catch let error where !asks || opening.asks || error is CancellationError || error is TokenSessionError {
                throw error
            } catch {}
            return try await open(patience: patience, loginIfUnknown: loginIfUnknown, login: login)
        }
        return try await join(asks) { life in
            try await self.open(patience, loginIfUnknown: loginIfUnknown, life, login)
        }
    }

    /// Begins an operation, or joins the one that is under way.
    private func join(
        _ asks: Bool = false, _ operation: @escaping @Sendable (_ life: Int) async throws -> State
    ) async throws -> State {
        if let opening { return try await wait(for: opening) }
        let (outcome, search, life) = (Outcome<State>(), Outcome<Void>(), life)
        // Not in the task: whatever ends the session before the task begins must find it not ended.
        if state.isClosed { broadcast.move(to: .created) }
        let task = Task {
            guard self.life == life else { return }
            await outcome.bring { try await operation(life) }
            await search.bring { _ = try await outcome.value() }
            if opening?.outcome === outcome { opening = nil }
        }
        let begun = Opening(outcome: outcome, search: search, task: task, asks: asks)
        opening = begun
        return try await wait(for: begun)
    }

    private func wait(for opening: Opening) async throws -> State {
        do {
            return try await opening.outcome.value()
        } catch {
            // Nobody waits for the outcome any more.
            if error is CancellationError, opening.outcome.waiters == 0, opening.outcome === self.opening?.outcome {
                giveUp()
            }
            throw error
        }
    }

    /// Gives up a login that is under way, as if the user had done so: all who wait for it get a `CancellationError`.
    ///
    /// For a login that does not call back, as when the user returns to the app without an answer (`handleDidBecomeActive` of the
    /// SDK). Its task is cancelled. If it brings a token nevertheless, that counts unless something else has begun meanwhile.
    /// When all tasks that wait for a login are cancelled, it is given up as well.
    public func abandonLogin() {
        if state == .createdOpening { giveUp() }
    }

    private func giveUp() {
        // Storing is not given up.
        guard !state.isOpen else { return }
        if state == .createdOpening { broadcast.move(to: .created) } else { life += 1 }
        endOpening(by: CancellationError())
    }

    private func endOpening(by error: any Error) {
        opening?.outcome.finish(.failure(error))
        opening?.search.finish(.success(()))
        opening?.task.cancel()
        opening = nil
    }

    private func load(_ patience: Duration, _ life: Int) async throws -> State {
        let cached = try await withTimeLimit(patience, clock: clock) { try await self.fetch() }
        guard self.life == life else { throw TokenSessionError.closed }
        guard let cached else { return state }
        guard accepts(cached) else {
            if isForThisApp(cached) { tellMissing(of: cached) }
            return state
        }
        isLoginCached = true
        broadcast.move(to: .createdTokenLoaded, cached)
        return state
    }

    private func open(_ patience: Duration, loginIfUnknown: Bool, _ life: Int, _ login: Login?) async throws -> State {
        if state == .createdTokenLoaded {
            // The server may have answered since the token was loaded.
            Task { await catchUp() }
        } else {
            do {
                _ = try await load(patience, life)
            } catch let error where login != nil && self.life == life {
                // An unreadable token counts as none, and the login's token replaces it.
                if case .unreadable? = error as? TokenCacheError {} else if !loginIfUnknown { throw error }
            }
        }
        if state == .createdTokenLoaded {
            broadcast.move(to: .open, currentToken)
            if let currentToken, let refresh, currentToken.isExpired(at: now()) {
                _ = refreshed(currentToken, for: .zero, isForced: false, by: refresh)
            }
        } else if let login {
            try await open(by: login, life)
        }
        return state
    }

    private func open(by login: Login, _ life: Int) async throws {
        broadcast.move(to: .createdOpening)
        opening?.search.finish(.success(()))
        let own = opening?.outcome
        var obtained: TokenInformation
        do {
            obtained = try await login()
            try obtained.check()
        } catch {
            guard self.life == life else { throw TokenSessionError.closed }
            if opening?.outcome === own {
                let isGivenUp = error is CancellationError
                broadcast.move(to: isGivenUp ? .created : .closedLoginFailed)
                if !isGivenUp { broadcast.tell(.loginFailed(error)) }
            }
            throw error
        }
        guard self.life == life else { throw TokenSessionError.closed }
        if obtained.loginID == nil { obtained.loginID = UUID().uuidString }
        if opening?.outcome !== own {
            // It was given up, and nobody waits for it.
            guard opening == nil, state == .created else { throw CancellationError() }
            broadcast.move(to: .createdTokenLoaded, obtained)
        }
        lastRefresh = now()
        isLoginCached = false
        broadcast.move(to: .open, obtained)
        await storeLogin(obtained)
        guard self.life == life else { throw TokenSessionError.closed }
    }

    /// Stores the token of a new login, which replaces whatever another device has left.
    func storeLogin(_ new: TokenInformation) async {
        let life = life
        do {
            try await store(new)
        } catch TokenCacheError.conflict where self.life == life {
            try? await store(new)
        } catch {}
    }

    /// Takes over a token that another library has obtained or kept: opens the session with it, or replaces the token of an open
    /// session.
    ///
    /// A token of the same user continues the login, as a refresh does, and is stored unless another device was faster. Its text
    /// may be the same, as Facebook's SDK extends a token by its dates and permissions. What it does not name stays as it was. One
    /// with another `userID` is another login: an open session ends, and opens again with it.
    ///
    /// Waits for a refresh that is under way, unless the closure of that refresh calls this.
    ///
    /// - Throws: `TokenSessionError.blankToken` or `.limitedLogin`; `.closed` if the session ends meanwhile. Nothing is thrown if the
    ///   token cannot be cached; `cachingError` tells why.
    public func adopt(_ information: TokenInformation) async throws {
        try information.check()
        if state.isOpen, currentToken?.mayBeOfSameUser(as: information) == true { try await passRefresh() }
        var new = information
        if let present = currentToken, present.mayBeOfSameUser(as: new) {
            new = new.completed(from: present)
            if state.isOpen {
                guard new != present else { return }
                replace(with: new)
                return await storeOrResolve(new)
            }
        }
        new.loginID = new.loginID ?? UUID().uuidString
        isLoginCached = false
        if opening != nil || state != .created {
            // Ends what is being opened, or another user's login with its refresh.
            end(.closed)
            broadcast.move(to: .created)
        }
        broadcast.move(to: .createdTokenLoaded, new)
        broadcast.move(to: .open, new)
        await storeLogin(new)
    }

    // MARK: - Closing

    /// Ends the session, in any state; the token stays in the cache, from which it can be opened again.
    ///
    /// When the call returns, all writes of the session have ended, unless the task was cancelled. It waits ten seconds at most for a
    /// refresh that is under way.
    public func close() async {
        end(.closed)
        // The provider may have used up the token that it got, so the process must not end before the new one is stored.
        try? await withTimeLimit(.seconds(10), clock: clock) { [refreshWork] in try await refreshWork?.value() }
        await writes.finish()
    }

    /// Signs the user out: ends the session, whatever its state, and clears the token.
    ///
    /// If the cache has a server, the user is signed out on all devices.
    ///
    /// - Parameter endAccount: Ends the user's account in the app, whose session the cache needs to sign out on the server. It is
    ///   called last, and told whether the server has the sign-out. If not, the cache sends it later with its copy of the session:
    ///   only forget the session in the app then, and do not have your server revoke it yet.
    /// - Returns: Whether the server has the sign-out. If not, the cache's `remoteError` says why; nil if it has not answered yet.
    /// - Throws: What the cache throws if it cannot clear the token; what the closure throws. The session has ended nevertheless,
    ///   and the closure was called; call this method again to clear the token.
    @discardableResult
    public func signOut(then endAccount: (@Sendable (_ isSent: Bool) async throws -> Void)? = nil) async throws -> Bool
    {
        end(.signedOut)
        let clearing = writes.begin { [cache] in try await cache.clear() }
        self.clearing = clearing
        // If the task is cancelled, it stops waiting, and the account ends nevertheless.
        return try await Outcome { [cache] in
            let cleared = await clearing.result
            let isWaiting = await (cache as? LayeredTokenCache)?.isWriteWaiting() == true
            let isSent = (try? cleared.get()) != nil && !isWaiting
            try await endAccount?(isSent)
            try cleared.get()
            return isSent
        }.value()
    }

    func end(_ ending: Ending) {
        guard !state.isClosed else { return }
        life += 1
        broadcast.move(to: state.isOpen ? .closed : .closedLoginFailed)
        (lastRefresh, lastCaching, lastReload) = (.distantPast, .distantPast, .distantPast)
        (rejected, cachingError) = (nil, nil)
        refreshing?.finish(.failure(TokenSessionError.closed))
        refreshing = nil
        endOpening(by: TokenSessionError.closed)
        broadcast.tell(.ended(ending))
    }
}
