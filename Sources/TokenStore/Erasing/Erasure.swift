/// What was erased of a user.
package struct Erasure: Hashable, Codable, Sendable {
    /// Whether there was a token, also one that had expired.
    package var hadToken: Bool
    /// How many sessions there were.
    package var sessions: Int

    package init(hadToken: Bool, sessions: Int) {
        self.hadToken = hadToken
        self.sessions = sessions
    }
}
