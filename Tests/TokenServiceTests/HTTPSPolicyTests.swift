import HTTP
import System
import TestSupport
import Testing
import TokenService

/// What a policy does with a request: `served`, `secure`, or the redirect's status and location.
private func outcome(
    _ mode: HTTPSPolicy.Mode, from address: String?, isTLS: Bool = false, _ request: String,
    trusted: [String] = ["127.0.0.0/8", "::1"], publicHost: String = "", port: UInt16 = 8080, tlsPort: UInt16? = nil,
    hidesClient: Bool = false
) -> String {
    let policy = HTTPSPolicy(
        mode: mode, trusted: (trusted + ["unix"]).compactMap(TrustedProxy.init), publicHost: publicHost,
        tlsPort: tlsPort)
    let reader = RequestReader(reading: request)
    let peer = policy.peer(address: address.flatMap(IPAddress.init), isTLS: isTLS, port: port, hidesClient: hidesClient)
    switch policy.decision(on: reader.request.head, in: reader.requestBytes, from: peer) {
    case .served(let isSecure): return isSecure ? "secure" : "served"
    case .refused(let refusal): return "\(refusal.status.rawValue)"
    case .redirected:
        guard let redirect = policy.redirect(reader.request.head, in: reader.requestBytes, from: peer) else {
            return "no host"
        }
        return "\(redirect.status.rawValue) \(String(decoding: redirect.extras?.location ?? [], as: UTF8.self))"
    }
}

private func repeated(_ text: String, _ count: Int) -> String { String(repeating: text, count: count) }

private func get(_ headers: String, target: String = "/token?a=b", method: String = "GET") -> String {
    "\(method) \(target) HTTP/1.1\r\nHost: example.com\r\n\(headers)\r\n"
}

@Suite struct HTTPSPolicyTests {
    @Test(arguments: try Fixtures.httpsCases())
    func `mode proxy does what the script does`(vector: Fixtures.HTTPSCase) {
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
            ("127.0.0.1", false, "Via: 1.1 vm (tinyproxy/1.11.1)\r\n", here), (nil, false, "via:\r\n", here),
            ("127.0.0.1", false, "X-Forwarded-Proto: https\r\nVia: 1.1 vm\r\n", "secure"),
            ("192.0.2.1", true, "Via: 1.1 vm\r\n", "secure"),
            // Forwarded (RFC 7239) says that there was a proxy; what it says of the request's way is not read.
            ("127.0.0.1", false, "Forwarded: for=192.0.2.1;proto=https\r\n", here),
            ("127.0.0.1", false, "X-Forwarded-Proto: https\r\nForwarded: proto=http\r\n", "secure"),
            ("192.0.2.1", false, "X-Forwarded-Proto: https\r\n", here),
            ("192.0.2.1", false, "Forwarded: proto=https\r\n", here),
            ("192.0.2.1", true, "X-Forwarded-Proto: https\r\n", "secure"),
            ("192.0.2.1", true, "X-Forwarded-Proto: http\r\n", here),
            ("10.1.2.3", false, "X-Forwarded-Proto: https\r\n", "secure"),
        ] as [(String?, Bool, String, String)]
    )
    func `mode strict answers what is secure or local, and redirects the rest`(
        address: String?, isTLS: Bool, headers: String, expected: String
    ) {
        let trusted = ["127.0.0.0/8", "::1", "10.0.0.0/8"]
        let found = outcome(
            .strict, from: address, isTLS: isTLS, get(headers), trusted: trusted, publicHost: "example.com")
        #expect(found == expected)
    }

    @Test(
        arguments: [
            ("Origin: http://127.0.0.1:8080", "served"), ("origin:HTTP://127.0.0.1:8080", "served"),
            ("Origin: https://127.0.0.1:8080", "403"), ("Origin: http://127.0.0.1", "403"),
            ("Origin: http://127.0.0.1:80801", "403"), ("Origin: http://127.0.0.1:808", "403"),
            ("Origin: http://localhost:8080", "403"), ("Origin: http://evil.example", "403"),
            ("Origin: https://evil.example", "403"), ("Origin: null", "403"), ("Origin:", "403"),
            ("Origin: http://", "403"), ("Origin: http://127.0.0.1:8080\u{301}", "403"),
            ("Origin: http://127.0.0.1:8080, http://127.0.0.1:8080", "403"),
            ("Origin: http://127.0.0.1:8080\r\nOrigin: http://127.0.0.1:8080", "403"),
            ("Sec-Fetch-Site: none", "served"), ("Sec-Fetch-Site: same-origin", "served"),
            ("sec-fetch-site: cross-site", "403"), ("Sec-Fetch-Site: same-site", "403"), ("Sec-Fetch-Site:", "403"),
            ("Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site", "403"),
            ("Origin: http://127.0.0.1:8080\r\nSec-Fetch-Site: cross-site", "403"),
            ("Origin: http://evil.example\r\nSec-Fetch-Site: same-origin", "403"),
            // What no browser says of a page.
            ("Origins: http://evil.example", "served"), ("Sec-Fetch-Mode: navigate", "served"),
            ("Referer: http://evil.example/", "served"),
        ]
    )
    func `mode strict refuses what a page of another site has a browser on this machine send`(
        fields: String, expected: String
    ) {
        for method in ["GET", "HEAD", "POST", "DELETE"] {
            let request = "\(method) /token HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\(fields)\r\n\r\n"
            #expect(outcome(.strict, from: "127.0.0.1", request) == expected, "\(method)")
            // Who knows an id needs no browser there, and programs that show pages send an Origin.
            #expect(outcome(.strict, from: "192.0.2.1", isTLS: true, request) == "secure")
            #expect(outcome(.strict, from: nil, request) == "served")
            #expect(outcome(.proxy, from: "127.0.0.1", request) == "served")
            #expect(outcome(.off, from: "127.0.0.1", request) == "served")
            let forwarded = request.replacing("\r\n\r\n", with: "\r\nX-Forwarded-Proto: https\r\n\r\n")
            #expect(outcome(.strict, from: "127.0.0.1", forwarded) == "secure")
        }
    }

    @Test(
        arguments: [
            ("evil.example", "421"), ("evil.example:8080", "421"), ("EVIL.example.", "421"), ("127.0.0.1.evil", "421"),
            ("1.2.3.4.x:1", "421"), ("localhost.evil", "421"), ("evillocalhost.a", "421"), ("a.evillocalhost", "421"),
            ("evil%2Eexample", "421"), ("t.example.evil", "421"), ("x.t.example", "421"), (".localhost", "served"),
            ("127.0.0.1", "served"), ("127.0.0.1:8080", "served"), ("127.1:80", "served"), ("[::1]:8080", "served"),
            ("[::ffff:127.0.0.1]", "served"), ("localhost", "served"), ("LOCALHOST:8080", "served"),
            ("localhost.", "served"), ("localhost.:80", "served"), ("a.b.localhost", "served"),
            ("a.LocalHost.:8080", "served"), ("machine", "served"), ("machine:8080", "served"), ("", "served"),
            ("t.example", "served"), ("T.example:8080", "served"),
        ]
    )
    func `mode strict refuses a host that somebody's DNS may have led to this machine`(host: String, expected: String) {
        let headers = "HTTP/1.1\r\nHost: \(host)\r\n\r\n"
        for method in ["GET", "POST"] {
            let found = outcome(.strict, from: "127.0.0.1", "\(method) /token \(headers)", publicHost: "t.example:8443")
            #expect(found == expected)
        }
        // The page of such a host is not another site's.
        let page = "GET / HTTP/1.1\r\nHost: \(host)\r\nOrigin: http://\(host)\r\n\r\n"
        if !host.isEmpty {
            #expect(outcome(.strict, from: "127.0.0.1", page, publicHost: "t.example:8443") == expected)
            let absolute = "GET http://\(host)/token HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            #expect(outcome(.strict, from: "127.0.0.1", absolute, publicHost: "t.example:8443") == expected)
        }
        #expect(outcome(.strict, from: nil, "GET /token \(headers)") == "served")
        #expect(outcome(.strict, from: "192.0.2.1", isTLS: true, "GET /token \(headers)") == "secure")
        #expect(outcome(.off, from: "127.0.0.1", "GET /token \(headers)") == "served")
        #expect(outcome(.proxy, from: "127.0.0.1", "GET /token \(headers)") == "served")
    }

    @Test(
        arguments: [
            ("evil.example:8080", "421"), ("EVIL.example.:08080", "421"), ("evil%2Eexample:8080", "421"),
            // What proxies write: the host of their own URL, or the address that they have the server under.
            ("evil.example", "secure"), ("evil.example:", "secure"), ("evil.example:8443", "secure"),
            ("evil.example:80800", "secure"), ("t.example:8080", "secure"),
            ("127.0.0.1:8080", "secure"), ("[::1]:8080", "secure"), ("localhost:8080", "secure"),
            ("machine:8080", "secure"),
            // A name may be all digits, with more of them than a number can have.
            ("123456789012345678901234567890", "secure"), ("123456789012345678901234567890.example:8080", "421"),
        ]
    )
    func `mode strict takes no page under a name of its own for a proxy on this machine`(host: String, expected: String)
    {
        let request = "GET /token HTTP/1.1\r\nHost: \(host)\r\nX-Forwarded-Proto: https\r\n\r\n"
        #expect(outcome(.strict, from: "127.0.0.1", request, publicHost: "t.example:8443") == expected)
        #expect(outcome(.strict, from: "::1", request, publicHost: "t.example:8443") == expected)
        // Proxies elsewhere may well have the server under a name; and no page has a certificate for one over TLS.
        #expect(outcome(.strict, from: "10.0.0.1", request, trusted: ["10.0.0.0/8"]) == "secure")
        #expect(outcome(.strict, from: "127.0.0.1", isTLS: true, request) == "secure")
        #expect(outcome(.strict, from: nil, request, port: 0) == "secure")
        #expect(outcome(.proxy, from: "127.0.0.1", request) == "secure")
    }

    @Test
    func `a request of a page is still recognized when a connection's head repeats`() {
        let policy = HTTPSPolicy(mode: .strict, trusted: [.unixSockets], publicHost: "")
        let peer = policy.peer(address: IPAddress("127.0.0.1"))
        for (fields, refusal) in [
            ("Host: a\r\nOrigin: http://b\r\n", Refusal.foreignPage), ("Host: a.b\r\n", .foreignHost),
            ("Host: a\r\nSec-Fetch-Site: cross-site\r\n", .foreignPage),
        ] {
            var reader = RequestReader(limits: RequestLimits())
            for count in 1...4 {
                // Where the fields lie differs from one to the next.
                let path = String(repeating: "a", count: count)
                reader.bytes += Array("GET /\(path) HTTP/1.1\r\n\(fields)\r\n".utf8)
                guard case .request = reader.next() else {
                    Issue.record("no request")
                    return
                }
                let decision = policy.decision(on: reader.request.head, in: reader.requestBytes, from: peer)
                #expect(decision == .refused(refusal))
                reader.finishRequest()
            }
        }
    }

    @Test
    func `redirects keep path, query and method, and go to the public host`() {
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

    @Test(
        arguments: [
            ("a.example", "a.example"), ("a.example:80", "a.example"), ("[2001:db8::1]:80", "[2001:db8::1]"),
            ("a.example:8080", "a.example:8443"), ("[2001:db8::1]:8080", "[2001:db8::1]:8443"),
            ("a.example:81", "a.example:81"), ("a.example:", "a.example:"),
        ])
    func `a redirect goes to a port of HTTPS, if it is known`(host: String, location: String) {
        func found(tlsPort: UInt16?) -> String {
            outcome(.strict, from: "192.0.2.1", "GET / HTTP/1.1\r\nHost: \(host)\r\n\r\n", tlsPort: tlsPort)
        }
        #expect(found(tlsPort: 8_443) == "302 https://\(location)/")
        #expect(found(tlsPort: 443) == "302 https://\(location.replacing(":8443", with: ""))/")
        #expect(found(tlsPort: nil) == "302 https://\(location.replacing(":8443", with: ":8080"))/")
    }

    /// PHP 8 behind Apache or nginx joins lines with a comma.
    @Test(
        arguments: [
            ("http", [["http"]]), ("https, http", [["https", "http"]]), ("http, http", [["http", "http"]]),
            ("https,http", [["https"], ["http"]]), ("http,", [["http", ""], ["", "http"]]),
        ])
    func `mode proxy takes several lines for one, as the script does`(line: String, lists: [[String]]) {
        func found(_ values: [String], from address: String = "192.0.2.1") -> String {
            outcome(.proxy, from: address, get(values.map { "X-Forwarded-Proto: \($0)\r\n" }.joined()))
        }
        #expect(found([line]) == (line == "http" ? Self.here : "served"))
        for values in lists where values.count > 1 { #expect(found(values) == "served") }
        #expect(found([line], from: "127.0.0.1") == "served")
    }

    @Test(arguments: ["127.0.0.1", "::1", nil])
    func `a client that its proxy hides is not a program on this machine`(address: String?) {
        let plain = "GET /token HTTP/1.1\r\nHost: localhost\r\n"
        for fields in ["", "X-Forwarded-Proto: https\r\n", "X-Forwarded-Proto: http\r\n"] {
            let request = plain + fields + "\r\n"
            let found = outcome(.strict, from: address, request, publicHost: "t.example", hidesClient: true)
            #expect(found == "302 https://t.example/token", "\(fields)")
            let secure = outcome(.strict, from: address, isTLS: true, request, hidesClient: true)
            #expect(secure == (fields.hasSuffix(": http\r\n") ? "302 https://localhost/token" : "secure"))
        }
        let saysHTTP = plain + "X-Forwarded-Proto: http\r\n\r\n"
        #expect(outcome(.proxy, from: address, saysHTTP, hidesClient: true) == "302 https://localhost/token")
        #expect(outcome(.off, from: address, saysHTTP, hidesClient: true) == "served")
    }

    @Test(
        arguments: [
            ("tokens.example.com", true), ("tokens.example.com:8443", true), ("localhost", false),
            ("localhost:8443", false),
            ("a.localhost.", false), ("127.0.0.1:8443", false), ("10.0.0.5", false), ("[::1]:8443", false),
            ("machine", false), ("", false),
        ])
    func `only a name with a dot is kept to https`(host: String, expected: Bool) {
        func isKept(_ fields: String = "", publicHost: String = "") -> Bool {
            let policy = HTTPSPolicy(mode: .strict, trusted: [.unixSockets], publicHost: publicHost)
            let reader = RequestReader(reading: "GET / HTTP/1.1\r\nHost: \(host)\r\n\(fields)\r\n")
            return policy.maySendHSTS(reader.request.head, in: reader.requestBytes)
        }
        let forwarded = "X-Forwarded-Proto: https\r\n"
        #expect(isKept() == expected && isKept(forwarded) == expected)
        // A proxy may send another host than its client's.
        #expect(isKept(publicHost: "t.example") == expected && isKept(forwarded, publicHost: "t.example"))
        #expect(isKept(forwarded, publicHost: "localhost:8443") == expected)
    }

    @Test
    func `mode off answers everything`() {
        #expect(outcome(.off, from: "192.0.2.1", get("X-Forwarded-Proto: http\r\n")) == "served")
        #expect(outcome(.off, from: "127.0.0.1", get("X-Forwarded-Proto: https\r\n")) == "secure")
    }

    @Test(
        arguments: [
            ("127.0.0.1", "", "127.0.0.1"), ("127.0.0.1", "X-Forwarded-For: 192.0.2.1\r\n", "192.0.2.1"),
            ("127.0.0.1", "X-Forwarded-For: 198.51.100.7, 192.0.2.1\r\n", "192.0.2.1"),
            ("127.0.0.1", "X-Forwarded-For: 198.51.100.7, 10.0.0.1\r\n", "198.51.100.7"),
            ("127.0.0.1", "X-Forwarded-For: 10.0.0.2, 10.0.0.1\r\n", "10.0.0.2"),
            ("127.0.0.1", "X-Forwarded-For: 198.51.100.7, unknown, 10.0.0.1\r\n", "10.0.0.1"),
            ("127.0.0.1", "X-Forwarded-For: 2001:db8::1\r\n", "2001:db8::1"),
            ("127.0.0.1", "X-Forwarded-For: 192.0.2.1:4711\r\n", "192.0.2.1"),
            ("127.0.0.1", "X-Forwarded-For: [2001:db8::1]:80\r\n", "2001:db8::1"),
            ("127.0.0.1", "X-Forwarded-For: [2001:db8::1]\r\n", "2001:db8::1"),
            ("127.0.0.1", "X-Forwarded-For: [192.0.2.1\r\n", "127.0.0.1"),
            ("127.0.0.1", "Forwarded: for=192.0.2.1\r\n", "127.0.0.1"),
            ("127.0.0.1", "X-Forwarded-For: 192.0.2.1\r\nForwarded: for=6.6.6.6\r\n", "192.0.2.1"),
            ("127.0.0.1", "X-Forwarded-For: 6.6.6.6, 192.0.2.1\r\nX-Forwarded-For: 10.0.0.1\r\n", "192.0.2.1"),
            ("127.0.0.1", "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For:\r\n", "192.0.2.1"),
            (
                "127.0.0.1", "X-Forwarded-For:\r\nx-forwarded-for:192.0.2.1 \r\nA: b\r\nX-Forwarded-For: 10.0.0.1\r\n",
                "192.0.2.1"
            ),
            ("127.0.0.1", "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 6.6.6.6\r\n", "6.6.6.6"),
            ("203.0.113.5", "X-Forwarded-For: 192.0.2.1\r\n", "203.0.113.5"),
            // Of long lists only the end is read, over all lines.
            ("127.0.0.1", "X-Forwarded-For: 6.6.6.6\(repeated(", 10.0.0.1", 15))\r\n", "6.6.6.6"),
            ("127.0.0.1", "X-Forwarded-For: 6.6.6.6\(repeated(", 10.0.0.1", 16))\r\n", "10.0.0.1"),
            ("127.0.0.1", "X-Forwarded-For: 6.6.6.6\r\n\(repeated("X-Forwarded-For: 10.0.0.1\r\n", 16))", "10.0.0.1"),
            ("127.0.0.1", "X-Forwarded-For: 6.6.6.6, \(repeated(",", 15)), 10.0.0.1\r\n", "10.0.0.1"),
            ("127.0.0.1", "X-Forwarded-For: 6.6.6.6,\(repeated(" ", 1_100)), 10.0.0.1\r\n", "10.0.0.1"),
            ("127.0.0.1", "X-Forwarded-For: 6\(repeated("6", 1_100)).6.6.6\r\n", "127.0.0.1"),
            ("127.0.0.1", "X-Forwarded-For: \(repeated("10.0.0.1,", 7_000)) ,, 192.0.2.1,\r\n", "192.0.2.1"),
        ]
    )
    func `the client is the rightmost hop that is not trusted`(address: String, headers: String, expected: String) {
        let trusted = ["127.0.0.0/8", "10.0.0.0/8"].compactMap(TrustedProxy.init)
        let policy = HTTPSPolicy(mode: .strict, trusted: trusted, publicHost: "")
        let reader = RequestReader(reading: get(headers), limits: RequestLimits(head: 1 << 20))
        let peer = policy.peer(address: IPAddress(address))
        let client = policy.client(of: reader.request.head, in: reader.requestBytes, from: peer)
        #expect(client?.description == expected)
    }
}
