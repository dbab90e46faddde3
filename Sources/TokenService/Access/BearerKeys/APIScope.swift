internal import Audit

/// What the bearer of an API key may do.
package enum APIScope: String, BearerKeyScope {
    /// Make, list and end sessions.
    case sessions
    case tokensRead = "tokens:read"
    case tokensWrite = "tokens:write"
    /// Erase users.
    case erase

    package static var kind: BearerKeyKind {
        BearerKeyKind(
            prefix: "tck_", name: "API key", plural: "API keys", setting: "access.api.keys_file",
            command: "access keys", commonScope: "sessions", addition: .addAPIKey,
            removal: .removeAPIKey)
    }
}

/// A key of an app's server.
package typealias APIKey = BearerKey<APIScope>
package typealias APIKeys = BearerKeys<APIScope>
package typealias APIKeyFile = BearerKeyFile<APIScope>
package typealias APIKeyFileError = BearerKeyFileError<APIScope>
