import FoundationEssentials

extension Setting {
    /// Whether and by whom tokens are refreshed.
    static let refresh = [
        Setting(
            "refresh.provider", \.refresh.provider,
            .orOff("facebook, oauth2, oauth2-post", RefreshSettings.Provider.init(rawValue:), \.rawValue),
            takesEffect: .atStart,
            """
            Who refreshes tokens when they are read; off for nobody. A token with less than a tenth of its lifetime left is
            answered and refreshed behind; one that has expired is waited for. See deploy/examples/refresh.md.

              facebook     exchanges tokens in the dictionary of Facebook's SDK that are at least a day old (fb_exchange_token)
              oauth2       exchanges refresh tokens (RFC 6749, section 6), in that dictionary or in the JSON of a token answer; the
                           client's secret goes into the header Authorization, percent-encoded
              oauth2-post  the same with the secret in the body, which servers accept that do not decode it
            """
        ),
        Setting(
            "refresh.url", \.refresh.url,
            .text(
                "empty, or a URL with https, such as https://login.example.com/token, or with http and 127.0.0.1, [::1] or localhost",
                where: { $0.isEmpty || isProviderURL($0) }),
            takesEffect: .atStart,
            "The token endpoint of the provider; empty for Facebook's own."
        ),
        Setting(
            "refresh.client_id", \.refresh.clientID, .text("an id, or empty"), takesEffect: .atStart,
            "The id of the app at the provider, to which its tokens were issued; Facebook's app id."
        ),
        Setting(
            "refresh.client_secret_file", \.refresh.clientSecretFile, .text("the path of a file, or empty"),
            takesEffect: .atStart,
            """
            The file with the app's secret, and nothing else, which is read at each refresh. If empty, it is the systemd
            credential token-cache.client-secret; without either, the app has no secret (a public client).
            """
        ),
        Setting(
            "refresh.wait", \.refresh.wait, .duration(.zero ... .seconds(15)), takesEffect: .atStart,
            "How long a GET waits for a token that has expired; then it is answered with the old one and the header Token-Refresh."
        ),
        Setting(
            "refresh.hide_refresh_tokens", \.refresh.hidesRefreshTokens, .onOff, takesEffect: .atStart,
            """
            Whether answers leave refresh tokens out, so that only the server can use them. A token info that is posted without one
            keeps the one that is stored if its access token is the same.
            """
        ),
    ]

    /// Whether secrets may be sent to a URL: nobody in between can read them.
    private static func isProviderURL(_ text: String) -> Bool {
        guard text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }), let url = URL(string: text), let host = url.host(),
            !host.isEmpty, url.user() == nil, url.fragment() == nil
        else { return false }
        return text.hasPrefix("https://")
            || text.hasPrefix("http://") && ["127.0.0.1", "::1", "[::1]", "localhost"].contains(host)
    }
}
