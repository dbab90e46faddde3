/// What the certificate of a client says, after it has been verified.
///
/// Each name is there only if the certificate has exactly one of its kind, which is not empty, has no NUL and, but for the
/// common name, is ASCII: which of several was meant would be a guess, and the part before a NUL would be another name.
///
/// Any thread.
package final class TLSClientCertificate: Sendable {
    /// SHA-256 of the certificate in DER, 32 bytes (`x5t#S256` of RFC 8705, section 3.1).
    package let thumbprint: [UInt8]
    /// The subject alternative name of type URI (RFC 5280, section 4.2.1.6).
    package let uriName: [UInt8]?
    /// The subject alternative name of type DNS, in lower case, as case means nothing in it.
    package let dnsName: [UInt8]?
    /// The common name of the subject, in UTF-8.
    package let commonName: [UInt8]?

    package init(thumbprint: [UInt8], uriName: [UInt8]?, dnsName: [UInt8]?, commonName: [UInt8]?) {
        self.thumbprint = thumbprint
        self.uriName = uriName
        self.dnsName = dnsName
        self.commonName = commonName
    }
}
