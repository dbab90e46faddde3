/// What the certificate of a client says, after TLS has verified it.
///
/// A name is nil unless the certificate has exactly one of its kind, which is not empty, has no NUL and, except for the common
/// name, is ASCII. To choose one of several would be a guess, and a program that stops reading at the NUL would see another name.
///
/// Any thread.
package final class ClientCertificate: Sendable {
    /// The subject alternative name of type URI (RFC 5280, section 4.2.1.6).
    package let uriName: [UInt8]?
    /// The subject alternative name of type DNS, in lower case, as its case does not count.
    package let dnsName: [UInt8]?
    /// The common name of the subject, in UTF-8.
    package let commonName: [UInt8]?

    package init(uriName: [UInt8]?, dnsName: [UInt8]?, commonName: [UInt8]?) {
        self.uriName = uriName
        self.dnsName = dnsName
        self.commonName = commonName
    }

    /// The kinds of names, one of which names the user.
    package enum NameKind: String, Sendable, CaseIterable {
        /// The subject alternative name of type URI, such as a SPIFFE ID.
        case sanURI = "san_uri"
        case sanDNS = "san_dns"
        case subjectCN = "subject_cn"
    }

    package func name(_ kind: NameKind) -> [UInt8]? {
        switch kind {
        case .sanURI: uriName
        case .sanDNS: dnsName
        case .subjectCN: commonName
        }
    }
}
