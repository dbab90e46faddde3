public import Foundation

/// The time for which a user is logged in: opens from a cached token or by a login, keeps the token fresh, and ends.
///
/// A session is used once, as in the SDK: after it was closed, the next one is a new `Session`. Usable from any task.
public actor Session {
    /// Obtains a token by asking the user.
    public typealias Login = @Sendable () async throws -> TokenInformation
    /// Obtains a new token in exchange for one that is still valid.
    public typealias Refresh = @Sendable (TokenInformation) async throws -> TokenInformation

    let cache: any TokenCaching
    let permissions: Set<String>
    let appID: String?
    let leeway: TimeInterval
    let now: @Sendable () -> Date
    let broadcast = StateBroadcast()
    /// Writes to the cache, so that a sign-out comes after a token that was just being stored, and stays.
    let writes = Turns()

    /// The token of an open session; nil before and after.
    public internal(set) var information: TokenInformation?
    /// Why the present token could not be cached; nil if it is cached.
    ///
    /// It is tried again.
    public internal(set) var cachingError: (any Error)?

    /// Whether a load, open or login is under way.
    private var isOpening = false
    /// The tasks that wait for the refresh under way; nil if there is none.
    var waiting: [Outcome<TokenInformation>]?
    var lastRefresh = Date.distantPast
    var lastCaching = Date.distantPast

    /// A session that is not open yet.
    ///
    /// - Parameters:
    ///   - cache: Where the user's token is kept.
    ///   - permissions: What a cached token must allow to be used.
    ///   - appID: The app that a cached token must have been issued to; nil accepts any. One that does not say fits too.
    ///   - leeway: How far ahead the device's clock may be before a cached token counts as expired.
    ///   - now: The device's clock.
    public init(
        cache: any TokenCaching, permissions: Set<String> = [], appID: String? = nil, leeway: Duration = .seconds(300),
        now: @escaping @Sendable () -> Date = { Date() }
    ) {
        self.cache = cache
        self.permissions = permissions
        self.appID = appID
        self.leeway = leeway.seconds
        self.now = now
    }

    /// The present state.
    public nonisolated var state: State { broadcast.state }

    /// The present state and all that follow, up to a final one; a stream of its own for each listener.
    public nonisolated var states: AsyncStream<State> { broadcast.states() }

    // MARK: - Opening

    /// Looks for a cached token, without opening: `created` becomes `createdTokenLoaded` if one is accepted.
    ///
    /// - Returns: The state after it.
    /// - Throws: What the cache throws, after which the state is the same: it is unknown whether there is a token.
    @discardableResult
    public func load() async throws -> State {
        guard state == .created, !isOpening else { throw SessionError.cannotOpen(state) }
        isOpening = true
        defer { isOpening = false }
        let cached = try await cache.fetch()
        guard state == .created else { throw SessionError.closed }
        guard let cached, accepts(cached) else { return state }
        information = cached
        broadcast.move(to: .createdTokenLoaded)
        return state
    }

    /// Opens the session: from the cached token if there is one that is accepted, and otherwise by the login.
    ///
    /// A cached token is accepted if its app fits, it has all permissions that are asked for, and it has not expired. One that
    /// is not accepted stays where it is: the SDK clears it, so that one device with a wrong clock logs all devices out.
    ///
    /// - Parameters:
    ///   - login: Asks the user; nil: the session opens only from a cached token, and otherwise stays `created`.
    ///   - loginIfUnknown: Whether the user is also asked when it is unknown whether there is a token. By default the error is
    ///     thrown, as somebody without a network is not signed out.
    /// - Returns: The state after it: `open`, or `created` if there is neither an accepted token nor a login.
    /// - Throws: What the cache throws, with the state as it was; what the login throws, with the state `closedLoginFailed`;
    ///   `SessionError`. A token that cannot be cached is no error, but see `cachingError`.
    @discardableResult
    public func open(login: Login? = nil, loginIfUnknown: Bool = false) async throws -> State {
        if state == .created {
            do {
                try await load()
            } catch let error where !(error is SessionError) {
                guard loginIfUnknown, login != nil, state == .created else { throw error }
            }
        }
        guard !isOpening else { throw SessionError.cannotOpen(state) }
        switch state {
        case .createdTokenLoaded:
            broadcast.move(to: .open)
            return state
        case .created:
            guard let login else { return state }
            try await open(by: login)
            return state
        default: throw SessionError.cannotOpen(state)
        }
    }

    private func open(by login: Login) async throws {
        isOpening = true
        defer { isOpening = false }
        broadcast.move(to: .createdOpening)
        let obtained: TokenInformation
        do {
            obtained = try await login()
            if obtained.isBlank { throw SessionError.blankToken }
        } catch {
            guard state == .createdOpening else { throw SessionError.closed }
            broadcast.move(to: .closedLoginFailed)
            throw error
        }
        guard state == .createdOpening else { throw SessionError.closed }
        information = obtained
        lastRefresh = now()
        broadcast.move(to: .open)
        do {
            try await store(obtained)
        } catch TokenCacheError.conflict {
            // The user has just logged in here: that is newer than whatever another device has left.
            try? await store(obtained)
        } catch {}
        guard state.isOpen else { throw SessionError.closed }
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
    /// - Throws: What the cache throws, after which nothing has changed; `SessionError.notOpen`.
    @discardableResult
    public func reload() async throws -> State {
        guard state.isOpen, let before = information else { throw SessionError.notOpen(state) }
        await writes.finish()
        let cached = try await cache.fetch()
        // Refreshed or closed meanwhile: what was fetched is older than that.
        guard state.isOpen, information == before, waiting == nil, cachingError == nil else { return state }
        if let cached {
            if cached != before, accepts(cached) { replace(with: cached) }
        } else {
            end(clearing: false)
        }
        return state
    }

    // MARK: - Closing

    /// Ends the session, in any state.
    ///
    /// When it returns, this session writes nothing any more.
    ///
    /// - Parameter clearingToken: Whether the user signs out: the token is cleared from the cache, on all devices if that is a
    /// remote one. Otherwise it stays for the next session.
    /// - Throws: What the cache throws if it cannot clear the token. The session is closed nevertheless; call it again to
    /// clear.
    public func close(clearingToken: Bool = false) async throws {
        end(clearing: clearingToken)
        if clearingToken {
            try await writes.run { [cache] in try await cache.clear() }
        } else {
            await writes.finish()
        }
    }

    func end(clearing: Bool) {
        if clearing { cachingError = nil }
        guard !state.isFinal else { return }
        information = nil
        broadcast.move(to: state.isOpen ? .closed : .closedLoginFailed)
        let waiting = waiting ?? []
        self.waiting = nil
        for outcome in waiting { outcome.finish(.failure(SessionError.closed)) }
    }
}

extension TokenInformation {
    var isBlank: Bool { !token.contains { !$0.isWhitespace } }
}
