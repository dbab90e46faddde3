import HTTP
import JWT
import TokenService

extension Setting {
    /// Who may read and write which token.
    static let access = [accessMode] + sessions + bearer + otherModes + [failures, facebook]

    private static let accessMode = Setting(
        "access.mode", \.access.mode, .choice, takesEffect: .atStart,
        """
        How a request shows which user it is for; the user alone decides whose token is read or written. open: the user is
        whoever unique_id says, as with token.php. session: a session that was made for the user. bearer: a signed JWT.
        header: a header of a trusted proxy that authenticates. certificate: the client's certificate.

        In mode open, whoever knows or guesses an id reads and overwrites its token. Choose it only where clients that you
        trust are alone with the server.

          session      unique_id=tcs_... or the header Authorization: Bearer tcs_...; the app's server makes the sessions
                       through the API (access.api.keys_file)
          bearer       Authorization: Bearer with a JWT of access.bearer.issuer
          header       the header access.header.name, from one of trusted_proxies
          certificate  a certificate issued by one of tls.client_ca, with the name access.certificate.name
        """
    )

    private static let sessions = [
        Setting(
            "access.session.max_age", \.access.session.maxAge, sessionTime, takesEffect: .atStart,
            "How long a session is valid, however often it is used."
        ),
        Setting(
            "access.session.idle_timeout", \.access.session.idleTimeout, sessionTime, takesEffect: .atStart,
            "How long a session is valid without being used. Beyond 100 sessions of a user, the oldest ends."
        ),
        Setting(
            "access.api.keys_file", \.access.apiKeysFile, .file, takesEffect: .atStart,
            """
            The file with the API keys of the app's server, which `token-cache access keys add` creates; empty for no API. It
            has only hashes of the keys. It is read again when it changes.
            """
        ),
    ]

    private static let sessionTime = SettingFormat<Duration>.duration(.seconds(1) ... .seconds(3_650 * 86_400))

    private static let bearer = [
        Setting(
            "access.bearer.issuer", \.access.bearer.rules.issuer,
            // No issuer contains a comma or a space: a text with one names several issuers.
            .text(
                """
                empty, or one issuer, such as https://login.example.com: the keys do not say whose they are, so each of several \
                issuers could sign tokens for the others' users
                """,
                where: { !$0.contains { ", ".contains($0) } }
            ),
            takesEffect: .atStart,
            "The issuer of JWTs, exactly as in their claim iss. A server has one; the user is access.bearer.user_claim alone."
        ),
        Setting(
            "access.bearer.audience", \.access.bearer.rules.audiences, .texts("audiences, such as token-cache"),
            takesEffect: .atStart,
            """
            The audiences of which the claim aud of a JWT must contain one. Otherwise, a token that was made for another
            service of the same issuer would be accepted here.
            """
        ),
        Setting(
            "access.bearer.keys_file", \.access.bearer.keysFile, .file,
            takesEffect: .atStart,
            """
            The file with the public keys of the issuer, and of nobody else, as a JSON Web Key Set (RFC 7517). Only its owner
            may write to it. It is read again on SIGHUP and when it changes; if it cannot be used, the old keys stay in use. A
            key with alg is used with that algorithm only, a key without it with all of its kind.
            """
        ),
        Setting(
            "access.bearer.user_claim", \.access.bearer.rules.userClaim,
            .text("the name of a claim, such as sub", where: { !$0.isEmpty }), takesEffect: .atStart,
            "The claim of a JWT that is the user. Choose one that the issuer never gives to another person."
        ),
        Setting(
            "access.bearer.in_unique_id", \.access.bearer.isReadInUniqueID, .onOff, takesEffect: .atStart,
            """
            Whether a JWT may also be in unique_id, for old apps that cannot send a header. A query may be in the logs of
            proxies, so let such apps use POST, or short-lived tokens. limits.head may have to be raised for long tokens.
            """
        ),
    ]

    private static let otherModes = [
        Setting(
            "access.header.name", \.access.headerName,
            .text(
                "empty, or the name of a header that the server does not read itself, without _: let the proxy rename it",
                where: isHeader),
            takesEffect: .atStart,
            """
            The header with the user in mode header, such as Remote-User or X-Forwarded-User. It counts only from
            trusted_proxies, which have to remove it from the requests of clients. A name with _, such as OIDC_CLAIM_sub, is
            refused, as clients could send it past many proxies with - instead: let the proxy send another name.
            """
        ),
        Setting(
            "access.certificate.name", \.access.certificateName, .choice, takesEffect: .atStart,
            """
            The name in a client's certificate that is the user in mode certificate. san_uri and san_dns are the subject
            alternative names of type URI and DNS, subject_cn is the common name of the subject. The certificate must have
            exactly one name of this kind.
            """
        ),
    ]

    private static let failures = Setting(
        "access.failures", \.access.failures,
        .orOff("a number of failures per s, min or h, such as 30/min", FailureRate.init, { "\($0)" }),
        """
        How many failures an address may have in which time, such as 30/min. Failures are unknown credentials, wrong keys and, in mode open,
        GETs that find nothing. Beyond it, whatever the address sends gets 429 before anything is looked up.

        Only mode open needs it, with ids that are not secrets: sessions, keys and signatures cannot be guessed. Phones
        behind one address, as in a mobile network, share its failures and are locked out together; in mode open the GET of
        a new user, who has no token yet, is a failure too. Behind trusted proxies, the client's own address counts; with
        IPv6, a network of 64 bits counts as one address.
        """
    )

    private static let facebook = Setting(
        "facebook.app_secret_file", \.access.facebookSecretFile, .text("the path of a file, or empty"),
        takesEffect: .atStart,
        """
        The file with the secret of your app at Facebook; empty if there is none. With it, Facebook's messages that somebody
        has left the app or wants its data deleted are accepted at /facebook/deauthorize and /facebook/data-deletion, and
        the tokens of that person are removed. The file is read again when it changes.
        """
    )

    /// Whether a name can be that of the header with the user.
    ///
    /// Many servers take `_` in a name for `-`: a client could send `Remote_User` past a proxy that removes `Remote-User`.
    private static func isHeader(_ name: String) -> Bool {
        guard !name.isEmpty else { return true }
        return Array(name.utf8).span.isFieldName && !name.contains("_")
            && !namesReadOtherwise.contains(name.lowercased())
    }

    private static let namesReadOtherwise = Set(
        HeaderField.allCases.map { "\($0.name)" } + ["authorization", "cookie", "if-match", "if-none-match"]
    )
}
