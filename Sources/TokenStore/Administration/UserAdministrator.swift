/// What operators do with the tokens and sessions of an open store's users, as clients do through handles.
package protocol UserAdministrator: Sendable {
    /// The token info of an id; nil when nothing is stored under it.
    func fetch(_ id: [UInt8]) async throws(StoreError) -> [UInt8]?

    /// Stores tokens, replacing those of the same id; they are durable when it returns.
    ///
    /// - Parameters:
    ///   - tokens: With the time of their writing in seconds since 1970, nil for now.
    ///   - keepsNewer: As in `WriteCondition`.
    /// - Returns: An outcome for each.
    func store(
        _ tokens: [(token: Token, writtenAt: Int64?)], keepsNewer: Bool
    ) async -> [Result<Void, StoreError>]

    /// Removes tokens.
    ///
    /// - Returns: For each id whether there was one.
    func remove(_ ids: [[UInt8]]) async throws(StoreError) -> [Bool]

    func sessionKey(of secret: [UInt8]) async throws(StoreError) -> SessionKey

    func createSession(_ request: NewSession) async throws(StoreError) -> CreatedSession

    /// The sessions of a user, the oldest first.
    func sessions(of user: [UInt8]) async throws(StoreError) -> [UserSession]

    /// Ends a session; nil if there is none.
    func endSession(id: SessionID) async throws(StoreError) -> EndedSession?

    /// Ends all sessions of a user; returns how many there were.
    func endSessions(of user: [UInt8]) async throws(StoreError) -> Int

    func erase(_ user: [UInt8]) async throws(StoreError) -> Erasure
}
