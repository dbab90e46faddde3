import HTTP
import TokenService

extension Setting {
    /// HTTPS, certificates and trusted proxies.
    static let security = https + tls + proxies

    private static let https = [
        Setting(
            "https.mode", \.https.mode, .choice,
            """
            Which requests are answered rather than redirected to https. strict: those that came over TLS, that came by https
            according to a trusted proxy, or that came from this machine without any forwarded header. proxy: the rule of
            token.php, which redirects a request with X-Forwarded-Proto: http unless it comes from 127.0.0.1. off: all of them;
            choose it only where nobody but you can reach the server.

            In mode strict, requests that other sites' pages make in a browser on this machine are refused.
            """
        ),
        Setting(
            "https.public_host", \.https.publicHost,
            .text(
                "empty, or a host with an optional port, such as tokens.example.com",
                where: { $0.isEmpty || ListenAddress.isAuthority($0) }
            ),
            """
            The host of redirects, such as tokens.example.com; empty for the host that the request names. In mode strict,
            programs on this machine may use it over plain HTTP too, as they may use IP addresses, localhost and host names
            without a dot.
            """
        ),
    ]

    private static let tls = [
        Setting(
            "tls.certificate", \.tls.certificates, .texts("paths of PEM files"), takesEffect: .atReloadOfCertificates,
            """
            The certificates of https:// listeners, in PEM, each with its intermediate certificates. A client gets the
            certificate for the name that it asks for, otherwise the first one. The files are read again on SIGHUP and when
            they change; if a certificate and its key do not match, the old pair stays in use.
            """
        ),
        Setting(
            "tls.private_key", \.tls.privateKeys, .texts("paths of PEM files"), takesEffect: .atReloadOfCertificates,
            "The private keys of tls.certificate, in PEM, in the same order."
        ),
        Setting(
            "tls.client_ca", \.tls.clientAuthorities, .file,
            takesEffect: .atReloadOfCertificates,
            """
            The authorities that must have issued clients' certificates, in PEM; empty asks for no certificates. For a proxy
            on another machine, or for devices with certificates of their own. Every https:// listener then requires a
            certificate, unless an entry of listen says ?client-certificate=required or optional: then only those ask.
            """
        ),
    ]

    private static let proxies = [
        Setting(
            "trusted_proxies", \.trustedProxies,
            .listOrNone(
                ["none"], "addresses and blocks, such as 10.0.0.0/8 or fd00::1, and unix for Unix sockets; or none",
                showing: "none", TrustedProxy.init, \.description
            ),
            """
            The proxies whose headers are believed: addresses, blocks such as 10.0.0.0/8, and unix for clients of Unix sockets;
            or none. Nobody else's X-Forwarded-For, X-Request-Id, PROXY headers or https in X-Forwarded-Proto are believed. Name
            the proxy's address if it runs on another machine.
            """
        )
    ]
}
