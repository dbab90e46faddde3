/// What operators do with the users of an open store and their sessions; as the members of `StoreHandle` of the same names.
package protocol UserAdministrator: Sendable {
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
