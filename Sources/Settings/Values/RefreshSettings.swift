/// Whether and by whom tokens are refreshed.
package struct RefreshSettings: Sendable {
    package enum Provider: String, Sendable, CaseIterable {
        case facebook
        case oauth2
        case oauth2Post = "oauth2-post"
    }

    /// Nil if tokens are not refreshed.
    package var provider: Provider?
    /// The provider's token endpoint; empty for Facebook's.
    package var url = ""
    package var clientID = ""
    /// The path of the file; if empty, systemd's credential has the secret, if there is one.
    package var clientSecretFile = ""
    package var wait = Duration.seconds(2)
    /// Whether nobody is given a refresh token.
    package var hidesRefreshTokens = false

    /// The systemd credential with the secret.
    package static let secretCredential = "token-cache.client-secret"

    /// Facebook's endpoint (developers.facebook.com/docs/facebook-login/guides/access-tokens/get-long-lived).
    package static let facebookURL = "https://graph.facebook.com/oauth/access_token"
}
