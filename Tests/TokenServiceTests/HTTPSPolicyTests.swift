import HTTP
import TestSupport
import Testing
import TokenService

/// What a policy does with a request: `served`, `secure`, or the redirect's status and location.
private func outcome(
    _ mode: HTTPSPolicy.Mode, from address: String?, isTLS: Bool = false, _ request: String,
    trusted: [String] = ["127.0.0.0/8", "::1"], publicHost: String = ""
) -> String {
    let proxies = HTTPSPolicy.TrustedProxies(
        ranges: trusted.compactMap(AddressRange.init), includesUnixSockets: true
    )
    let policy = HTTPSPolicy(mode: mode, trusted: proxies, publicHost: publicHost)
    var reader = RequestReader(limits: RequestLimits())
    reader.bytes = Array(request.utf8)
    guard case .request = reader.next() else { return "no request" }
    let origin = policy.origin(address: address.flatMap(IPAddress.init), isTLS: isTLS)
    switch policy.decision(on: reader.request.head.forwarding, in: reader.requestBytes, from: origin) {
    case .served(let isSecure): return isSecure ? "secure" : "served"
    case .redirected:
        guard let redirect = policy.redirect(reader.request.head, in: reader.requestBytes) else { return "no host" }
        return "\(redirect.status.rawValue) \(String(decoding: redirect.location ?? [], as: UTF8.self))"
    }
}

private func get(_ headers: String, target: String = "/token?a=b", method: String = "GET") -> String {
    "\(method) \(target) HTTP/1.1\r\nHost: example.com\r\n\(headers)\r\n"
}

@Suite struct HTTPSPolicyTests {
    @Test("mode proxy does what the script does", arguments: try Fixtures.httpsCases())
    func script(vector: Fixtures.HTTPSCase) {
        let headers = vector.headers.map { "\($0[0]): \($0[1])\r\n" }.joined()
        let target = vector.target.replacing("{PATH}", with: "/token.php")
        let request = "\(vector.method) \(target) HTTP/1.1\r\nHost: \(vector.host)\r\n\(headers)\r\n"
        let found = outcome(.proxy, from: vector.remoteAddress, request)
        if vector.expect.outcome == "redirect" {
            let location = (vector.expect.location ?? "").replacing("{PATH}", with: "/token.php")
            #expect(found == "\(vector.expect.status ?? 0) \(location)")
        } else {
            #expect(found == "served" || found == "secure")
        }
    }

    private static let here = "302 https://example.com/token?a=b"

    @Test(
        "mode strict answers what is secure or local, and redirects the rest",
        arguments: [
            ("127.0.0.1", false, "", "served"), ("::1", false, "", "served"), (nil, false, "", "served"),
            ("192.0.2.1", false, "", here), ("192.0.2.1", true, "", "secure"), ("127.0.0.1", true, "", "secure"),
            ("127.0.0.1", false, "X-Forwarded-Proto: https\r\n", "secure"),
            (nil, false, "X-Forwarded-Proto: https\r\n", "secure"),
            ("127.0.0.1", false, "X-Forwarded-Proto: HTTPS\r\n", "secure"),
            ("127.0.0.1", false, "X-Forwarded-Proto: http\r\n", here),
            ("127.0.0.1", false, "X-Forwarded-Proto: https, http\r\n", here),
            ("127.0.0.1", false, "X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http\r\n", here),
            ("127.0.0.1", false, "X-Forwarded-Proto: https\r\nX-Forwarded-Proto: https\r\n", "secure"),
            (
                "127.0.0.1", false,
                "X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Proto: https\r\n", here
            ),
            (
                "127.0.0.1", false,
                "X-Forwarded-Proto: https\r\nA: b\r\nx-forwarded-proto:HTTP\r\nX-Forwarded-Proto:\r\n", here
            ),
            (
                "127.0.0.1", false,
                "X-Forwarded-Proto: https\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Proto: https\r\n", "secure"
            ),
            ("127.0.0.1", false, "X-Forwarded-Proto:\r\nX-Forwarded-Proto: https\r\n", "secure"),
            ("127.0.0.1", false, "X-Forwarded-Proto: https\r\nX-Forwarded-Host: http\r\n", "secure"),
            ("127.0.0.1", false, "X-Forwarded-Proto: wss\r\n", here),
            ("127.0.0.1", false, "X-Forwarded-For: 192.0.2.1\r\n", here),
            ("127.0.0.1", false, "X-Forwarded-Host: a\r\n", here),
            ("127.0.0.1", false, "X-Real-IP: 192.0.2.1\r\n", here),
            ("127.0.0.1", false, "Forwarded: for=192.0.2.1\r\n", here),
            ("127.0.0.1", false, "Forwarded: for=192.0.2.1;proto=https\r\n", "secure"),
            ("127.0.0.1", false, "Forwarded: proto=http, for=a;Proto=\"https\"\r\n", "secure"),
            ("127.0.0.1", false, "Forwarded: proto=https, for=a\r\n", here),
            ("127.0.0.1", false, "Forwarded: proto=https, proto=http\r\n", here),
            ("127.0.0.1", false, "Forwarded: for=\"a\\\"\";proto=https\r\n", "secure"),
            ("127.0.0.1", false, "Forwarded: proto=\"h\\ttps\"\r\n", "secure"),
            ("127.0.0.1", false, "Forwarded: proto=https;x=\"a\\\"\", proto=http\r\n", here),
            ("127.0.0.1", false, "Forwarded: proto=https;x=\", for=192.0.2.1;proto=http\r\n", here),
            ("127.0.0.1", false, "Forwarded: proto=https;x=\"\\, for=192.0.2.1;proto=http\r\n", here),
            ("127.0.0.1", false, "Forwarded: proto=https;x=\"\\\r\n", here),
            // The proxy says http in Forwarded, and the client hides that in one of its own.
            ("127.0.0.1", false, "X-Forwarded-Proto: https\r\nForwarded: x=\", proto=http\r\n", here),
            ("192.0.2.1", true, "Forwarded: x=\"\r\n", "secure"),
            ("127.0.0.1", false, "X-Forwarded-Proto: https\r\nForwarded: proto=http\r\n", here),
            ("192.0.2.1", false, "X-Forwarded-Proto: https\r\n", here),
            ("192.0.2.1", false, "Forwarded: proto=https\r\n", here),
            ("192.0.2.1", true, "X-Forwarded-Proto: https\r\n", "secure"),
            ("192.0.2.1", true, "X-Forwarded-Proto: http\r\n", here),
            ("10.1.2.3", false, "X-Forwarded-Proto: https\r\n", "secure"),
        ] as [(String?, Bool, String, String)]
    )
    func strict(address: String?, isTLS: Bool, headers: String, expected: String) {
        let trusted = ["127.0.0.0/8", "::1", "10.0.0.0/8"]
        #expect(outcome(.strict, from: address, isTLS: isTLS, get(headers), trusted: trusted) == expected)
    }

    @Test("redirects keep path, query and method, and go to the public host")
    func redirects() {
        func location(_ request: String, publicHost: String = "") -> String {
            outcome(.strict, from: "192.0.2.1", request, publicHost: publicHost)
        }
        #expect(location(get("", method: "HEAD")) == "302 https://example.com/token?a=b")
        #expect(location(get("", method: "POST")) == "308 https://example.com/token?a=b")
        #expect(location(get("", method: "DELETE")) == "308 https://example.com/token?a=b")
        #expect(location(get("", target: "http://other:81/x?y")) == "302 https://other:81/x?y")
        #expect(location(get("", target: "http://other?y")) == "302 https://other/?y")
        #expect(location(get("", target: "*", method: "OPTIONS")) == "308 https://example.com/")
        #expect(location(get(""), publicHost: "t.example:8443") == "302 https://t.example:8443/token?a=b")
        #expect(location("GET / HTTP/1.0\r\n\r\n") == "no host")
        #expect(location("GET / HTTP/1.0\r\n\r\n", publicHost: "a") == "302 https://a/")
    }

    @Test("mode proxy believes every line that says http")
    func lines() {
        let line = { (value: String) in "X-Forwarded-Proto: \(value)\r\n" }
        let between = line("https") + line("http") + line("https")
        #expect(outcome(.proxy, from: "192.0.2.1", get(between)) == Self.here)
        #expect(outcome(.proxy, from: "127.0.0.1", get(between)) == "served")
        #expect(outcome(.proxy, from: "192.0.2.1", get(line("https") + line("HTTP") + line("https"))) == "served")
    }

    @Test("mode off answers everything")
    func off() {
        #expect(outcome(.off, from: "192.0.2.1", get("X-Forwarded-Proto: http\r\n")) == "served")
        #expect(outcome(.off, from: "127.0.0.1", get("X-Forwarded-Proto: https\r\n")) == "secure")
    }

    @Test(
        "the client is the rightmost hop that is not trusted",
        arguments: [
            ("127.0.0.1", "", "127.0.0.1"), ("127.0.0.1", "X-Forwarded-For: 192.0.2.1\r\n", "192.0.2.1"),
            ("127.0.0.1", "X-Forwarded-For: 198.51.100.7, 192.0.2.1\r\n", "192.0.2.1"),
            ("127.0.0.1", "X-Forwarded-For: 198.51.100.7, 10.0.0.1\r\n", "198.51.100.7"),
            ("127.0.0.1", "X-Forwarded-For: 10.0.0.2, 10.0.0.1\r\n", "10.0.0.2"),
            ("127.0.0.1", "X-Forwarded-For: 198.51.100.7, unknown, 10.0.0.1\r\n", "10.0.0.1"),
            ("127.0.0.1", "X-Forwarded-For: 2001:db8::1\r\n", "2001:db8::1"),
            ("127.0.0.1", "X-Forwarded-For: 192.0.2.1:4711\r\n", "192.0.2.1"),
            ("127.0.0.1", "Forwarded: for=\"[2001:db8::1]:80\";proto=https\r\n", "2001:db8::1"),
            ("127.0.0.1", "Forwarded: for=192.0.2.1, for=10.0.0.1\r\n", "192.0.2.1"),
            ("127.0.0.1", "Forwarded: for=_hidden\r\n", "127.0.0.1"),
            ("127.0.0.1", "Forwarded: for=\"\\192.0.2.1\"\r\n", "192.0.2.1"),
            ("127.0.0.1", "Forwarded: for=192.0.2.1;x=\"a\\\"\"\r\n", "192.0.2.1"),
            ("127.0.0.1", "Forwarded: for=6.6.6.6;proto=https;x=\", for=192.0.2.1;proto=http\r\n", "127.0.0.1"),
            ("127.0.0.1", "Forwarded: for=6.6.6.6, proto=https\r\n", "127.0.0.1"),
            ("127.0.0.1", "Forwarded: for=6.6.6.6, by=10.0.0.2, for=10.0.0.1\r\n", "10.0.0.1"),
            ("127.0.0.1", "X-Forwarded-For: 192.0.2.1\r\nForwarded: for=6.6.6.6\r\n", "192.0.2.1"),
            ("127.0.0.1", "Forwarded: for=6.6.6.6\r\nX-Forwarded-For: unknown\r\n", "127.0.0.1"),
            ("127.0.0.1", "Forwarded: for=6.6.6.6\r\nX-Forwarded-For:\r\n", "127.0.0.1"),
            ("127.0.0.1", "X-Forwarded-For: 6.6.6.6, 192.0.2.1\r\nX-Forwarded-For: 10.0.0.1\r\n", "192.0.2.1"),
            ("127.0.0.1", "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For:\r\n", "192.0.2.1"),
            (
                "127.0.0.1", "X-Forwarded-For:\r\nx-forwarded-for:192.0.2.1 \r\nA: b\r\nX-Forwarded-For: 10.0.0.1\r\n",
                "192.0.2.1"
            ),
            ("127.0.0.1", "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 6.6.6.6\r\n", "6.6.6.6"),
            ("127.0.0.1", "Forwarded: for=192.0.2.1\r\nForwarded: for=10.0.0.1\r\n", "192.0.2.1"),
            ("127.0.0.1", "Forwarded: for=6.6.6.6;x=\"\r\nForwarded: for=10.0.0.1\r\n", "10.0.0.1"),
            ("203.0.113.5", "X-Forwarded-For: 192.0.2.1\r\n", "203.0.113.5"),
        ]
    )
    func client(address: String, headers: String, expected: String) {
        let ranges = ["127.0.0.0/8", "10.0.0.0/8"].compactMap(AddressRange.init)
        let trusted = HTTPSPolicy.TrustedProxies(ranges: ranges, includesUnixSockets: false)
        let policy = HTTPSPolicy(mode: .strict, trusted: trusted, publicHost: "")
        var reader = RequestReader(limits: RequestLimits())
        reader.bytes = Array(get(headers).utf8)
        _ = reader.next()
        let origin = policy.origin(address: IPAddress(address), isTLS: false)
        let client = policy.client(of: reader.request.head, in: reader.requestBytes, from: origin)
        #expect(client?.description == expected)
    }
}

@Suite struct IPAddressTests {
    @Test("addresses are read and written in their usual form")
    func text() {
        for text in ["0.0.0.0", "192.0.2.1", "255.255.255.255", "::", "::1", "2001:db8::a:b", "fe80::1"] {
            #expect(IPAddress(text)?.description == text)
        }
        #expect(IPAddress("::ffff:192.0.2.1") == IPAddress("192.0.2.1"))
        for text in ["", "1.2.3", "1.2.3.4.5", "256.0.0.1", "::g", "[::1]", "1.2.3.4:5", "localhost"] {
            #expect(IPAddress(text) == nil, "\(text)")
        }
        #expect(IPAddress(networkOrder: [192, 0, 2, 1]) == IPAddress("192.0.2.1"))
        #expect(IPAddress(networkOrder: [1, 2]) == nil)
    }

    @Test(
        "a block holds what agrees in its bits",
        arguments: [
            ("10.0.0.0/8", "10.255.0.1", true), ("10.0.0.0/8", "11.0.0.0", false), ("10.0.0.7", "10.0.0.7", true),
            ("10.0.0.7", "10.0.0.6", false), ("0.0.0.0/0", "192.0.2.1", true), ("0.0.0.0/0", "::1", false),
            ("::/0", "192.0.2.1", true), ("fd00::/8", "fdff::1", true), ("fd00::/8", "fe00::1", false),
            ("2001:db8::/65", "2001:db8::7fff:0:0:1", true), ("2001:db8::/65", "2001:db8::8000:0:0:1", false),
            ("2001:db8::/64", "2001:db8::8000:0:0:1", true), ("::1", "::1", true), ("::1", "::2", false),
        ]
    )
    func ranges(range: String, address: String, isInside: Bool) throws {
        let range = try #require(AddressRange(range))
        #expect(range.contains(try #require(IPAddress(address))) == isInside)
        #expect(AddressRange(range.description) == range)
    }

    @Test(
        "a block is written as it is read",
        arguments: [
            "10.0.0.0/8", "10.0.0.7", "0.0.0.0/0", "::/0", "fd00::/8", "::1", "::ffff:0.0.0.0/90", "::ffff:10.1.2.3/0",
            "::ffff:10.0.0.0/95",
        ]
    )
    func description(text: String) throws {
        let range = try #require(AddressRange(text))
        #expect(range.description == text)
        #expect(AddressRange(range.description) == range)
    }

    @Test("a block of IPv4 addresses is written as one, however it was read")
    func mapped() {
        #expect(AddressRange("::ffff:0.0.0.0/96")?.description == "0.0.0.0/0")
        #expect(AddressRange("::ffff:10.0.0.0/104")?.description == "10.0.0.0/8")
        #expect(AddressRange("::ffff:10.0.0.1")?.description == "10.0.0.1")
    }

    @Test(
        "what is no block is refused",
        arguments: ["10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.0/", "/8", "a/8", "1.2.3.4/8/9"])
    func malformed(text: String) {
        #expect(AddressRange(text) == nil)
    }
}
