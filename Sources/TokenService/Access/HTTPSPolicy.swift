package import Cryptography
package import HTTP
package import System

/// Decides whether a request is answered as it came or redirected to HTTPS.
///
/// Clients send tokens, which anybody between them and the server can read over plain HTTP. The decision is made before any
/// parameter is read.
package struct HTTPSPolicy: Sendable {
    package enum Mode: String, Sendable, CaseIterable {
        /// Answers requests that came over TLS, that a trusted proxy says came over HTTPS, or that came directly from this
        /// machine, unless a browser here sent them for a page of another site.
        case strict
        /// The rule of `token.php`: redirects requests with `X-Forwarded-Proto: http`, unless they come from 127.0.0.1.
        case proxy
        /// Answers all requests.
        case off
    }

    /// What is known about a connection; the same for all its requests.
    package struct Peer: Sendable {
        /// Nil for a Unix socket.
        package let address: IPAddress?
        /// Whether the client came over TLS, which ends here or at a proxy that has said so when the connection began.
        package var isTLS: Bool
        /// Whether the peer is a proxy that forwards a client's requests without naming the client.
        package let hidesClient: Bool
        /// Whether the peer's headers are believed; not if a proxy hides its client, as the client may have written them.
        package let isTrusted: Bool
        /// The server's port that the client connected to; 0 if no URL can name it.
        package let port: UInt16

        /// Whether the peer is a program on this machine that sends requests of its own, and not those of others as a proxy does.
        var isLocal: Bool { !hidesClient && (address?.isLoopback ?? true) }
    }

    package enum Decision: Hashable, Sendable {
        /// `isSecure`: the answer reaches the client over HTTPS, as far as is known.
        case served(isSecure: Bool)
        case redirected
        case refused(Refusal)
    }

    private let mode: Mode
    /// The peers whose forwarded headers are believed.
    private let trusted: [TrustedProxy]
    /// The host of redirects; empty to use the request's host.
    private let publicHost: [UInt8]
    /// The port of this server's listeners for HTTPS; nil if there are none, or on different ports.
    private let tlsPort: UInt16?

    package init(mode: Mode, trusted: [TrustedProxy], publicHost: String, tlsPort: UInt16? = nil) {
        self.mode = mode
        self.trusted = trusted
        self.publicHost = Array(publicHost.utf8)
        self.tlsPort = tlsPort
    }

    /// The peer of a connection under this policy.
    package func peer(
        address: IPAddress?, isTLS: Bool = false, port: UInt16 = 0, hidesClient: Bool = false
    ) -> Peer {
        Peer(
            address: address, isTLS: isTLS, hidesClient: hidesClient,
            isTrusted: !hidesClient && isTrusted(address), port: port)
    }

    private func isTrusted(_ address: IPAddress?) -> Bool { trusted.contains { $0.contains(address) } }

    // MARK: - Decision

    package func decision(on head: RequestHead, in bytes: Span<UInt8>, from peer: Peer) -> Decision {
        // Most requests come directly from a client or a program here, without forwarded headers.
        if !head.fields.forwarding.isPresent {
            if peer.isTLS || mode != .strict { return .served(isSecure: peer.isTLS) }
            guard peer.isLocal else { return .redirected }
            if head.fields.hasForeignName || head.fields.mentionsPage,
                let refusal = refusal(of: head, in: bytes, from: peer)
            {
                return .refused(refusal)
            }
            return .served(isSecure: false)
        }
        // Only what is believed is read.
        func isSecure() -> Bool {
            if peer.isTLS || !peer.isTrusted { return peer.isTLS }
            let schemes = bytes.lastElements(of: head.forwardedProtos(in: bytes))
            return !schemes.isEmpty && schemes.allSatisfy { bytes.equalsIgnoringCase($0, "https") }
        }
        switch mode {
        case .off: return .served(isSecure: isSecure())
        case .proxy:
            let isExempt = peer.address == Self.scriptsLoopback && !peer.hidesClient
            // Several lines are one list (RFC 9110, section 5.3), which the script compares as a whole.
            let protos = head.forwardedProtos(in: bytes)
            let saysHTTP = protos.count == 1 && bytes.equals(protos[0], "http")
            return saysHTTP && !isExempt ? .redirected : .served(isSecure: isSecure())
        case .strict:
            guard isSecure() else { return .redirected }
            // Nobody gains by claiming that a request came over plain HTTP, so that is believed from anyone.
            if peer.isTLS,
                bytes.lastElements(of: head.forwardedProtos(in: bytes)).contains(where: {
                    bytes.equalsIgnoringCase($0, "http")
                })
            {
                return .redirected
            }
            return isRebound(head, in: bytes, from: peer) ? .refused(.foreignHost) : .served(isSecure: true)
        }
    }

    /// What makes a client be redirected again and again behind its proxy, in a sentence for the log; nil if nothing does.
    ///
    /// - Parameter head: That of a request that is redirected.
    package func causeOfLoop(_ head: RequestHead, in bytes: Span<UInt8>, from peer: Peer) -> String? {
        guard !peer.isTLS, !peer.hidesClient else { return nil }
        let schemes = bytes.lastElements(of: head.forwardedProtos(in: bytes))
        let saysHTTPS = schemes.contains { bytes.equalsIgnoringCase($0, "https") }
        let sender = peer.address?.description ?? "the program at the Unix socket"
        if !peer.isTrusted {
            return saysHTTPS
                ? """
                a request with X-Forwarded-Proto: https is redirected, as \(sender) is not in trusted_proxies; if that is your \
                proxy, add it there
                """ : nil
        }
        return saysHTTPS || schemes.isEmpty
            ? """
            a request of \(sender), a trusted proxy, is redirected, as its X-Forwarded-Proto is not https alone; if the client came \
            over HTTPS, have the proxy say so with X-Forwarded-Proto: https
            """ : nil
    }

    /// The only address that `token.php` exempts, in exactly this spelling.
    private static let scriptsLoopback = IPAddress("127.0.0.1")

    // MARK: - Pages

    /// Why a request that came directly from this machine is refused; nil if it is answered.
    ///
    /// A browser on this machine can reach servers that other machines cannot, and a page of any site can have it send a form to
    /// them. If the page's own DNS name resolves to this machine, the page can read the answer as well.
    @inline(never)
    private func refusal(of head: RequestHead, in bytes: Span<UInt8>, from peer: Peer) -> Refusal? {
        // Browsers cannot reach a Unix socket.
        guard peer.address != nil else { return nil }
        if head.fields.hasForeignName && !isPublicHost(head.authority, in: bytes) { return .foreignHost }
        return head.isFromForeignPage(in: bytes) ? .foreignPage : nil
    }

    /// Whether a page sent a request that claims to have come through a proxy on this machine.
    ///
    /// A page whose own DNS name resolves to this machine may set any forwarded header. But its URL has to name the port of our
    /// listener, and so does the Host header that the browser writes, while a proxy on this machine listens on another port. Only
    /// port 80 does not appear in Host: there a page cannot be told from a proxy.
    private func isRebound(_ head: RequestHead, in bytes: Span<UInt8>, from peer: Peer) -> Bool {
        guard peer.port != 0, !peer.isTLS, peer.address?.isLoopback == true,
            bytes.port(of: head.authority) == Int(peer.port)
        else { return false }
        return bytes.hasForeignName(head.authority) && !isPublicHost(head.authority, in: bytes)
    }

    /// Whether an authority names the host of redirects, with any port.
    private func isPublicHost(_ authority: ByteRange, in bytes: Span<UInt8>) -> Bool {
        // A final dot only says that the name is complete (RFC 3986, section 3.2.2).
        func name(_ authority: String) -> Substring {
            let name = authority.lowercased().prefix { $0 != ":" }
            return name.last == "." ? name.dropLast() : name
        }
        return !publicHost.isEmpty && name(bytes.text(authority)) == name(String(decoding: publicHost, as: UTF8.self))
    }

    // MARK: - Strict-Transport-Security

    /// Whether an answer over HTTPS may tell browsers to use nothing else for the request's host (RFC 6797).
    ///
    /// Not for `localhost`, addresses and names without a dot: other programs answer there as well, on other ports and over plain
    /// HTTP. A proxy may have replaced the host by the server's address; clients then know `https.public_host`.
    package func maySendHSTS(_ head: RequestHead, in bytes: Span<UInt8>) -> Bool {
        // The fields do not have it yet if the head could not be read to its end.
        head.fields.hasForeignName || bytes.hasForeignName(head.authority)
            || head.fields.forwarding.isPresent && publicHost.span.hasForeignName(ByteRange(0, publicHost.count))
    }

    // MARK: - Redirect

    /// The redirect to HTTPS; nil if the request names no host and none is set.
    package func redirect(_ head: RequestHead, in bytes: Span<UInt8>, from peer: Peer) -> Response? {
        var location = Array("https://".utf8)
        if publicHost.isEmpty {
            guard !head.authority.isEmpty else { return nil }
            appendHost(head.authority, in: bytes, from: peer, to: &location)
        } else {
            location += publicHost
        }
        // The target as sent, from the path on; `*` and a missing path become `/`.
        let target = ByteRange(Int(head.path.start), Int(head.target.end))
        if target.isEmpty || bytes[Int(target.start)] != UInt8(ascii: "/") { location.append(UInt8(ascii: "/")) }
        if !bytes.equals(head.path, "*") { location.append(target, in: bytes) }
        let keepsMethod = head.method != .get && head.method != .head
        return Response(status: keepsMethod ? .permanentRedirect : .found, body: [], location: location)
    }

    /// Appends the host of a request, with a port at which somebody speaks TLS: not that of plain HTTP.
    private func appendHost(
        _ authority: ByteRange, in bytes: Span<UInt8>, from peer: Peer, to location: inout [UInt8]
    ) {
        let port = bytes.port(of: authority)
        let isOwn = tlsPort != nil && port == Int(peer.port)
        // The script keeps the port.
        guard mode == .strict, port == 80 || isOwn else { return location.append(authority, in: bytes) }
        let colon = authority.indices.last { bytes[$0] == UInt8(ascii: ":") } ?? Int(authority.end)
        location.append(ByteRange(Int(authority.start), colon), in: bytes)
        if isOwn, let tlsPort, tlsPort != 443 { location += Array(":\(tlsPort)".utf8) }
    }

    // MARK: - Client

    /// The client's address: the rightmost hop that is not a trusted proxy; nil for a Unix socket.
    ///
    /// The hops are those of X-Forwarded-For, of which several lines form one list (RFC 9110, section 5.3).
    package func client(of head: RequestHead, in bytes: Span<UInt8>, from peer: Peer) -> IPAddress? {
        guard peer.isTrusted, head.fields.forwarding.isPresent else { return peer.address }
        var client = peer.address
        for element in bytes.lastElements(of: head.forwardedAddresses(in: bytes)) {
            // An invalid address proves nothing, and neither do the hops before it.
            guard let hop = IPAddress.hop(bytes.text(element)) else { break }
            client = hop
            if !isTrusted(hop) { break }
        }
        return client
    }
}

/// Where a request comes from.
package struct RequestSource: Sendable {
    let peer: HTTPSPolicy.Peer
    /// The client's address, as `HTTPSPolicy.client` finds it; nil for a Unix socket.
    let client: IPAddress?
    /// What the client's certificate says; nil without one.
    let certificate: ClientCertificate?

    package init(peer: HTTPSPolicy.Peer, client: IPAddress?, certificate: ClientCertificate? = nil) {
        self.peer = peer
        self.client = client
        self.certificate = certificate
    }
}
