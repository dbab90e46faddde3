public import Foundation

/// The life of a login: opens from a cached token or by asking the user, keeps the token fresh, ends, and can be opened again.
///
/// One object serves for the app's life. Usable from any task. A task that is cancelled stops waiting at once, whatever it waits
/// for.
public actor TokenSession {
    /// Obtains a token by asking the user.
    ///
    /// If the user changes their mind, it throws `CancellationError`: the session is then as it was before.
    public typealias Login = @Sendable () async throws -> TokenInformation
    /// Obtains a new token in exchange for one that is still valid.
    public typealias Refresh = @Sendable (TokenInformation) async throws -> TokenInformation

    let cache: any TokenCaching
    let permissions: Set<String>
    let appID: String?
    let leeway: TimeInterval
    let now: @Sendable () -> Date
    private let clock: any Clock<Duration>
    let broadcast = SessionBroadcast()
    /// Writes to the cache, so that a sign-out comes after a token that was just being stored, and stays.
    let writes = Turns()

    /// Why the present token could not be cached; nil if it is cached.
    ///
    /// It is tried again.
    public internal(set) var cachingError: (any Error)?

    /// Counts up when the session ends: what has begun before does not count any more.
    var life = 0
    /// What is being opened or loaded.
    private var opening: (outcome: Outcome<State>, task: Task<Void, Never>)?
    /// What the refresh under way will bring.
    var refreshing: Outcome<TokenInformation>?
    var lastRefresh = Date.distantPast
    var lastCaching = Date.distantPast
    /// A token that an API has refused.
    var refused: String?

    /// A session that is not open yet.
    ///
    /// - Parameters:
    ///   - cache: Where the user's token is kept.
    ///   - permissions: What a cached token must allow to be used.
    ///   - appID: The app that a cached token must have been issued to; nil accepts any. One that does not say fits too.
    ///   - leeway: How far ahead the device's clock may be before a cached token counts as expired.
    ///   - clock: What waits are measured by.
    ///   - now: The device's clock.
    public init(
        cache: any TokenCaching, permissions: Set<String> = [], appID: String? = nil, leeway: Duration = .seconds(300),
        clock: any Clock<Duration> = ContinuousClock(), now: @escaping @Sendable () -> Date = { Date() }
    ) {
        self.cache = cache
        self.permissions = permissions
        self.appID = appID
        self.leeway = leeway.seconds
        self.now = now
        self.clock = clock
        (cache as? any SharedTokenCaching)?.report { [weak broadcast] in broadcast?.tell(.cachingFailed($0)) }
    }

    /// The present state.
    public nonisolated var state: State { broadcast.state }

    /// The token of an open session, or the one that was loaded, as it is; nil otherwise.
    ///
    /// `token(validFor:forcingRefresh:refresh:)` refreshes it if necessary.
    public nonisolated var currentToken: TokenInformation? { broadcast.information }

    /// The present state and all that follow, until the object is gone; a stream of its own for each listener.
    public nonisolated var states: AsyncStream<State> { broadcast.states() }

    /// What happens from now on, until the object is gone; a stream of its own for each listener.
    public nonisolated var events: AsyncStream<Event> { broadcast.events() }

    // MARK: - Opening

    /// Looks for a cached token, without opening: `created` becomes `createdTokenLoaded` if one is accepted.
    ///
    /// - Parameter patience: How long to wait for the cache, after which it is unknown whether there is a token.
    /// - Returns: The state after it.
    /// - Throws: What the cache throws, or `TokenCacheError.timedOut`, after which the state is the same: it is unknown whether
    ///   there is a token.
    @discardableResult
    public func load(patience: Duration = .seconds(2)) async throws -> State {
        try await passCancelled()
        if state == .createdTokenLoaded || state.isOpen { return state }
        return try await join { life in try await self.load(patience, life) }
    }

    /// Opens the session: from the cached token if there is one that is accepted, and otherwise by the login.
    ///
    /// A cached token is accepted if its app fits, it has all permissions that are asked for, and it has not expired. One that
    /// is not accepted stays where it is: the SDK clears it, so that one device with a wrong clock logs all devices out.
    ///
    /// An open session stays as it is. Further calls while one is under way wait for that one, and go on only if it has not opened
    /// the session.
    ///
    /// - Parameters:
    ///   - patience: How long to wait for the cache, after which it is unknown whether there is a token.
    ///   - loginIfUnknown: Whether the user is also asked when it is unknown whether there is a token. By default the error is
    ///     thrown, as somebody without a network is not signed out.
    ///   - login: Asks the user; nil: the session opens only from a cached token, and otherwise stays `created`.
    /// - Returns: The state after it: `open`, or `created` if there is neither an accepted token nor a login.
    /// - Throws: What the cache throws, or `TokenCacheError.timedOut`, with the state as it was; what the login throws, with the
    ///   state `closedLoginFailed`, or `created` if that is a `CancellationError`; `TokenSessionError`. A token that cannot be
    ///   cached is no error, but see `cachingError`.
    @discardableResult
    public func open(patience: Duration = .seconds(2), loginIfUnknown: Bool = false, login: Login? = nil) async throws
        -> State
    {
        try await passCancelled()
        if state.isOpen { return state }
        if let opening {
            let state = try await wait(for: opening)
            if state.isOpen { return state }
            return try await open(patience: patience, loginIfUnknown: loginIfUnknown, login: login)
        }
        return try await join { life in
            try await self.open(patience, loginIfUnknown: loginIfUnknown, life, login)
        }
    }

    /// Begins something, or joins what is under way.
    private func join(_ operation: @escaping @Sendable (_ life: Int) async throws -> State) async throws -> State {
        if let opening { return try await wait(for: opening) }
        let (outcome, life) = (Outcome<State>(), life)
        // Not in the task: what ends the session before that begins must find one that has not ended.
        if state.isClosed { broadcast.move(to: .created) }
        let task = Task {
            await outcome.bring { try await operation(life) }
            if self.life == life { opening = nil }
        }
        opening = (outcome, task)
        return try await wait(for: (outcome, task))
    }

    /// Waits for the end of what nobody waited for any more, which others must not join.
    private func passCancelled() async throws {
        while let task = opening?.task, task.isCancelled { try await Outcome { await task.value }.value() }
    }

    private func wait(for opening: (outcome: Outcome<State>, task: Task<Void, Never>)) async throws -> State {
        do {
            return try await opening.outcome.value()
        } catch {
            // Nobody is left who would want to know.
            if error is CancellationError, opening.outcome.waiters == 0 { opening.task.cancel() }
            throw error
        }
    }

    private func load(_ patience: Duration, _ life: Int) async throws -> State {
        let cached = try await withTimeLimit(patience, clock: clock) { [cache] in try await cache.fetch() }
        guard self.life == life else { throw TokenSessionError.closed }
        guard let cached, accepts(cached) else { return state }
        broadcast.move(to: .createdTokenLoaded, cached)
        return state
    }

    private func open(_ patience: Duration, loginIfUnknown: Bool, _ life: Int, _ login: Login?) async throws -> State {
        if state != .createdTokenLoaded {
            do {
                _ = try await load(patience, life)
            } catch let error where login != nil && self.life == life && !(error is CancellationError) {
                // What nobody can read is no token, and the next one replaces it.
                if case .unreadable? = error as? TokenCacheError {} else if !loginIfUnknown { throw error }
            }
        }
        if state == .createdTokenLoaded {
            broadcast.move(to: .open, currentToken)
        } else if let login {
            try await open(by: login, life)
        }
        return state
    }

    private func open(by login: Login, _ life: Int) async throws {
        broadcast.move(to: .createdOpening)
        var obtained: TokenInformation
        do {
            obtained = try await login()
            if obtained.isBlank { throw TokenSessionError.blankToken }
        } catch {
            guard self.life == life else { throw TokenSessionError.closed }
            broadcast.move(to: error is CancellationError || Task.isCancelled ? .created : .closedLoginFailed)
            throw error
        }
        guard self.life == life else { throw TokenSessionError.closed }
        if obtained.loginID == nil { obtained.loginID = UUID().uuidString }
        lastRefresh = now()
        broadcast.move(to: .open, obtained)
        do {
            try await store(obtained)
        } catch TokenCacheError.conflict where self.life == life {
            // The user has just logged in here: that is newer than whatever another device has left.
            try? await store(obtained)
        } catch {}
        guard self.life == life else { throw TokenSessionError.closed }
    }

    /// Takes a token that another library has obtained or kept: opens the session by it, or replaces the one of an open session.
    ///
    /// A token of the same user goes on with the login, as a refresh does; one of another `userID` is another login. It is stored
    /// unless another device was faster.
    ///
    /// - Throws: `TokenSessionError.blankToken`. A token that cannot be cached is no error, but see `cachingError`.
    public func adopt(_ information: TokenInformation) async throws {
        guard !information.isBlank else { throw TokenSessionError.blankToken }
        guard information.token != currentToken?.token || !state.isOpen else { return }
        var new = information
        let isSameUser = currentToken.map { $0.userID == nil || new.userID == nil || $0.userID == new.userID } ?? false
        new.loginID = isSameUser ? currentToken?.loginID : new.loginID ?? UUID().uuidString
        if state.isOpen {
            replace(with: new)
            return await storeOrResolve(new)
        }
        if opening != nil || state != .created {
            // What is being opened does not count any more.
            end(.closed)
            broadcast.move(to: .created)
        }
        broadcast.move(to: .createdTokenLoaded, new)
        broadcast.move(to: .open, new)
        let life = life
        do {
            try await store(new)
        } catch TokenCacheError.conflict where self.life == life {
            try? await store(new)
        } catch {}
    }

    func accepts(_ cached: TokenInformation) -> Bool {
        (appID == nil || cached.appID == nil || cached.appID == appID)
            && permissions.isSubset(of: cached.permissions) && !cached.isExpired(at: now() - leeway)
    }

    // MARK: - Looking again

    /// Compares the token of an open session with the cache: adopts one that another device has stored, and closes the session
    /// if the user has signed out there.
    ///
    /// - Returns: The state after it.
    /// - Throws: What the cache throws, after which nothing has changed; `TokenSessionError.notOpen`.
    @discardableResult
    public func reload() async throws -> State {
        guard state.isOpen, let before = currentToken else { throw TokenSessionError.notOpen(state) }
        let cached = try await Outcome { [writes, cache] in
            await writes.finish()
            return try await cache.fetch()
        }.value()
        // Refreshed or closed meanwhile: what was fetched is older than that.
        guard state.isOpen, currentToken == before, refreshing == nil, cachingError == nil else { return state }
        if let cached {
            if cached != before, accepts(cached) { replace(with: cached) }
        } else {
            end(.signedOutElsewhere)
        }
        return state
    }

    // MARK: - Closing

    /// Ends the session, in any state; the token stays in the cache, and opens it again.
    ///
    /// When it returns, this session writes nothing any more.
    public func close() async {
        end(.closed)
        await writes.finish()
    }

    /// Signs the user out: ends the session, whatever its state, and clears the token.
    ///
    /// If the cache has a server, the user is signed out on all devices.
    ///
    /// - Parameter endAccount: Ends the user's account in the app, whose session the cache needs to sign out on the server. It is
    ///   called last, and told whether the server has the sign-out. If not, the cache sends it later by the session that it
    ///   has: only forget that one here, and do not have your server revoke it yet.
    /// - Throws: What the cache throws if it cannot clear the token; what the closure throws. The session has ended nevertheless,
    ///   and the closure was called; call it again to clear.
    public func signOut(then endAccount: (@Sendable (_ isSent: Bool) async throws -> Void)? = nil) async throws {
        end(.signedOut)
        var failure: (any Error)?
        do {
            try await writes.run { [cache] in try await cache.clear() }
        } catch {
            failure = error
        }
        if let endAccount {
            let isWaiting = await (cache as? any SharedTokenCaching)?.isWriteWaiting() == true
            try await endAccount(failure == nil && !isWaiting)
        }
        if let failure { throw failure }
    }

    func end(_ ending: Ending) {
        guard !state.isClosed else { return }
        life += 1
        broadcast.move(to: state.isOpen ? .closed : .closedLoginFailed)
        (lastRefresh, lastCaching, refused, cachingError) = (.distantPast, .distantPast, nil, nil)
        refreshing?.finish(.failure(TokenSessionError.closed))
        refreshing = nil
        opening?.outcome.finish(.failure(TokenSessionError.closed))
        opening?.task.cancel()
        opening = nil
        broadcast.tell(.ended(ending))
    }
}

extension TokenInformation {
    var isBlank: Bool { !token.contains { !$0.isWhitespace } }
}
