internal import HTTP

extension Setting {
    /// The addresses for clients.
    package static let listen = Setting(
        "listen", \.listen,
        .list(ListenAddress.allowed, ListenAddress.init, \.description).advising(ListenAddress.advice),
        takesEffect: .atStart, option: "--listen",
        """
        The addresses to listen on for clients. Only this machine reaches 127.0.0.1; choose 0.0.0.0:8080 for a proxy on
        another machine.

          127.0.0.1:8080, http://[::1]:8080      an address and a port, IPv6 in brackets; 0.0.0.0 and [::] stand for all
                                                 addresses of their family
          https://0.0.0.0:8443                   the same over TLS, with the files of the section tls;
                                                 ?client-certificate=required or optional asks clients for certificates
          unix:/run/token-cache/http.sock        a Unix socket, by a path of at most 107 bytes; ?mode=0660 sets who may
                                                 connect, and &owner=user:group its owner if root runs the server
          systemd                                the sockets that systemd socket units pass on

        With ?proxy-protocol=required, each connection has to begin with a PROXY protocol header (version 1 or 2) from
        one of trusted_proxies.

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
                ["off", "false"], "addresses with a port, such as 127.0.0.1:9090, or off", showing: "off",
                { ListenAddress($0).flatMap { $0.isPlain ? $0 : nil } }, \.description
            ).advising(ListenAddress.plainAdvice),
            takesEffect: .atStart,
            """
            The addresses for operators, in plain HTTP: GET / (a page with charts), /status (the same figures as JSON),
            /metrics (for Prometheus), /healthz (the process is alive), /readyz (it can answer and store tokens, or why it
            cannot) and what the page is made of. Let nobody else reach them, as they show how much is stored.

            With off, operators use control.sock in the data folder, which answers the same. There, POST /reload (as SIGHUP),
            /drain (as SIGTERM), /token and /token/delete need no key; here they need an admin key (admin.keys_file).
            """
        ),
        Setting(
            "admin.hosts", \.admin.hosts,
            .listOrNone(
                [""], "names of hosts without a port, such as token-cache.example.net, or an empty list", host, { $0 }),
            """
            The host names that requests to admin.listen may use, such as token-cache if Prometheus scrapes
            token-cache:9090. IP addresses and localhost need no entry; a request for any other host gets 421, so that no web
            page reads the answers through a host name of its own.
            """
        ),
        Setting(
            "admin.keys_file", \.admin.keysFile, .text("the path of a file, or empty"),
            """
            The file with the admin keys, which `token-cache admin keys add` creates; empty for none. It has only hashes of
            the keys, and is read again when it changes. A request to admin.listen shows its key in the header
            Authorization: Bearer, and with the scope steer may reload and stop the server, and look up and delete tokens.

            The keys come in plain HTTP: for other machines, put a proxy with TLS in front of admin.listen.
            """
        ),
        Setting(
            "admin.read", \.admin.read, .choice,
            """
            Who may read /status, /history, /log, /settings and /metrics at admin.listen: open is whoever can connect, key
            only who shows an admin key. /healthz and /readyz stay open for probes, but then /readyz gives the reasons only
            with a key.
            """
        ),
    ]

    private static func host(_ name: String) -> String? {
        !name.contains(":") && isAuthority(name) ? name : nil
    }

    /// Whether it is a host with an optional port.
    static func isAuthority(_ text: String) -> Bool {
        let bytes = Array(text.utf8)
        return bytes.span.isAuthority(ByteRange(0, bytes.count))
    }
}
