extension TokenSession {
    /// Asks the user of an open session for more, such as permissions, and replaces the token by what that brings.
    ///
    /// It is the same login, and what the new token does not name stays as it was. A refresh that is under way ends first.
    ///
    /// - Parameter login: Asks the user, and throws a `CancellationError` if the user gives up, as for `open`. Whatever it throws, the
    ///   session keeps its token.
    /// - Returns: The new token; its `permissions` say what the user has granted.
    /// - Throws: What the login throws; `TokenSessionError.otherUser`, `.blankToken`, `.limitedLogin`, `.notOpen` and `.closed`.
    ///   Nothing is thrown if the token cannot be cached; `cachingError` tells why.
    @discardableResult
    public func extend(login: @escaping Login) async throws -> TokenInformation {
        guard state.isOpen else { throw TokenSessionError.notOpen(state) }
        let (life, outcome) = (life, Outcome<TokenInformation>())
        let asking = Task { await outcome.bring(login) }
        // If the task is cancelled, it does not wait for a login that does not call back.
        defer { asking.cancel() }
        let obtained = try await outcome.value()
        try obtained.check()
        try await passRefresh()
        guard self.life == life, let present = currentToken else { throw TokenSessionError.closed }
        guard present.mayBeOfSameUser(as: obtained) else { throw TokenSessionError.otherUser }
        let new = obtained.completed(from: present)
        replace(with: new)
        await storeOrResolve(new, replacesRejected: true)
        return new
    }

    /// Takes over what the service says about the permissions of the present token, with the present time.
    ///
    /// - Throws: `TokenSessionError.notOpen`, and `.closed` if the session ends meanwhile.
    public func updatePermissions(granted: Set<String>, declined: Set<String> = []) async throws {
        try await passRefresh()
        guard state.isOpen, var new = currentToken else { throw TokenSessionError.notOpen(state) }
        (new.permissions, new.declinedPermissions, new.permissionsRefreshDate) = (granted, declined, now())
        replace(with: new)
        await storeOrResolve(new)
    }

    /// The refresh whose closure this task runs.
    @TaskLocal static var ownRefresh: Outcome<TokenInformation>?

    /// Waits for a refresh that is under way: the token that it brings is the one to continue from.
    ///
    /// A closure that refreshes does not wait for its own refresh, which would never end.
    ///
    /// - Throws: `TokenSessionError.closed` if the session ends meanwhile.
    func passRefresh() async throws {
        let life = life
        while let refreshing, refreshing !== Self.ownRefresh, !Task.isCancelled { _ = try? await refreshing.value() }
        guard self.life == life else { throw TokenSessionError.closed }
    }
}
