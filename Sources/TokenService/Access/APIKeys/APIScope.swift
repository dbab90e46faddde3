/// What the bearer of an API key may do.
package enum APIScope: String, Sendable, CaseIterable {
    /// Make, list and end sessions.
    case sessions
    case tokensRead = "tokens:read"
    case tokensWrite = "tokens:write"
    /// Erase users.
    case erase
}
