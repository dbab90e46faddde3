extension Setting {
    /// Paths and kinds of bodies.
    static let serving = [
        Setting(
            "paths", \.paths, .list("paths that begin with / and have no ?, # or blanks", path, { $0 }),
            "The paths that are served; all others get 404. Add the path that your clients have built in."
        ),
        Setting(
            "json_bodies", \.readsJSON, .onOff,
            """
            Whether POST bodies of type application/json are read: {"unique_id": "...", "token_info": "..." or {...}}.
            token.php ignores them; turn it on for clients of your own.
            """
        ),
    ]

    private static func path(_ text: String) -> String? {
        let isAllowed =
            text.hasPrefix("/") && text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && !"#?\"\\".utf8.contains($0) }
        return isAllowed ? text : nil
    }
}

extension Setting {
    /// The addresses for clients.
    package static let listen = Setting(
        "listen", \.listen,
        .list(ListenAddress.allowed, { ListenAddress($0).flatMap { $0.hosts.isEmpty ? $0 : nil } }, \.description),
        takesEffect: .atStart, option: "--listen",
        """
        The addresses to listen on for clients. Only this machine reaches 127.0.0.1; choose 0.0.0.0:8080 for a proxy on
        another machine.

          127.0.0.1:8080, http://[::1]:8080      an address and a port, IPv6 in brackets; 0.0.0.0 and [::] stand for all
                                                 addresses of their family
          https://0.0.0.0:8443                   the same over TLS, with the files of the section tls;
                                                 ?client-certificate=required or optional asks clients for certificates
          unix:/run/token-cache/http.sock        a Unix socket, by a path of at most 107 bytes; ?mode=0660 sets who may
                                                 connect; its group is that of a folder with the mode g+s
          systemd                                the sockets that systemd socket units pass on

        With ?proxy-protocol=required, each connection has to begin with a PROXY protocol header (version 1 or 2) from
        one of trusted_proxies. If the proxy ends TLS and its header does not say so, as that of stunnel, add
        &tls=terminated.

        Without systemd in the list, sockets that systemd passes on replace the addresses of their kind.
        FileDescriptorName= of a socket unit names the protocol: http, https, proxy (HTTP behind a PROXY header) or
        https-proxy. Without it, the entry decides (systemd, https://systemd, systemd?proxy-protocol=required);
        otherwise it is http.
        """
    )

    /// The addresses for monitoring and administration.
    static let administration = [
        Setting(
            "admin.listen", \.admin.listen,
            .listOrNone(
                ["off", "false"],
                "addresses with a port, such as 127.0.0.1:9090 or 0.0.0.0:9090?host=token-cache.example.net, or off",
                showing: "off",
                { ListenAddress($0).flatMap { $0.isPlain ? $0 : nil } }, \.description
            ),
            takesEffect: .atStart,
            """
            The addresses for operators, in plain HTTP. They answer GET / (a page with charts), /status and /history (its figures
            as JSON), /settings, /metrics (for Prometheus), /healthz (the process is alive) and /readyz (whether it can answer and
            store tokens). Whoever can connect may read all of this, which shows how much is stored: for other machines, put a
            proxy in front that asks for a password, such as nginx with the example administration.conf.

            A request for a host name with a dot gets 421, so that no web page reads the answers through a name of its own. If
            Prometheus uses such a name, write it behind the address: 0.0.0.0:9090?host=token-cache.example.net.

            control.sock in the data folder answers the same, for the server's user and root, also with off. Only there,
            POST /reload is carried out (as SIGHUP).
            """
        )
    ]
}
