internal import HTTP

/// Where a request comes from, as far as its connection tells.
package struct RequestSource: Sendable {
    package let origin: HTTPSPolicy.Origin
    /// Finds the client's address behind trusted proxies.
    package let https: HTTPSPolicy
    /// What the client's certificate says; nil without one.
    package let certificate: ClientCertificate?

    package init(origin: HTTPSPolicy.Origin, https: HTTPSPolicy, certificate: ClientCertificate? = nil) {
        self.origin = origin
        self.https = https
        self.certificate = certificate
    }

    /// The client's address; nil for a Unix socket.
    func address(of head: RequestHead, in bytes: Span<UInt8>) -> IPAddress? {
        https.client(of: head, in: bytes, from: origin)
    }
}

/// What a client's certificate says of the client; TLS has verified the certificate.
package final class ClientCertificate: Sendable {
    /// The name that `access.certificate.name` chooses; nil if the certificate does not have exactly one.
    package let name: [UInt8]?
    /// SHA-256 of the certificate (RFC 8705, section 3.1).
    package let thumbprint: [UInt8]

    package init(name: [UInt8]?, thumbprint: [UInt8]) {
        self.name = name
        self.thumbprint = thumbprint
    }
}
