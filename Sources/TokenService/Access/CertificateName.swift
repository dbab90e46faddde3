/// Which name of a client's certificate is the user.
package enum CertificateName: String, Sendable, CaseIterable {
    /// The subject alternative name of type URI, such as a SPIFFE ID (RFC 5280, section 4.2.1.6).
    case sanURI = "san_uri"
    /// The subject alternative name of type DNS.
    case sanDNS = "san_dns"
    /// The common name of the subject.
    case subjectCN = "subject_cn"
}
