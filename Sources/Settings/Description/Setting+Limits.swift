import HTTP

extension Setting {
    /// Limits of requests and connections.
    static let limits = [
        Setting(
            "limits.head", \.limits.head, .bytes(512...16 << 20),
            """
            The largest request line and headers together; beyond it, or beyond 100 header lines, 431. A request line that is
            longer by itself gets 414.
            """
        ),
        Setting(
            "limits.body", \.limits.body, .bytes(1 << 10...64 << 20),
            "The largest body; beyond it 413. No token info can be larger than this."
        ),
        Setting(
            "limits.buffers", \.bufferLimit, .bytes(1 << 20...64 << 30),
            """
            The memory for all requests and answers under way. It has requests that have not arrived in full, answers that
            clients have not read, tokens that are being stored (up to half of the value at the start), and TLS handshakes (up
            to half). Beyond three quarters of it, the connections end that have waited longest for the rest of a request, or
            for a client that does not read its answer. Beyond all of it, a request gets 503, a POST 50001, a long answer is cut
            off, and the oldest handshakes end. Without this limit, slow clients or a slow disk could fill the memory.
            """
        ),
        Setting(
            "limits.connections", \.connectionLimit, .number(1...1_000_000),
            """
            The largest number of open connections. For a further one, some are closed: first those that were never answered,
            then idle ones, then those whose request or answer is not complete, each time those that have waited longest. If
            there are none, the new one gets 503. Each takes a descriptor: raise ulimit -n or LimitNOFILE= as well, or fewer are
            served.
            """
        ),
    ]

    /// How long the server waits for a client.
    static let timeouts = [
        Setting(
            "timeouts.body", \.timeouts.body, waiting,
            """
            The longest time from the end of the headers to the end of the body; beyond it 408. Also the longest time in which a
            client reads an answer, or the next 256 KiB of it, and in which a request with a long body or a long answer gets its
            turn; beyond that it gets 503.

            A third of it is the longest time from the first byte of a request to the end of its headers, and for a TLS
            handshake from the start of the connection. Slow phones may need longer.
            """
        ),
        Setting(
            "timeouts.idle", \.timeouts.idle, waiting,
            """
            The longest time between two requests of a connection. Keep it longer than the proxy's own timeout, so that the
            proxy closes first.
            """
        ),
    ]

    private static let waiting = SettingFormat<Duration>.duration(.milliseconds(100) ... .seconds(3_600))
}
