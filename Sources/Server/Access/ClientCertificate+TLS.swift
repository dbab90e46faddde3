internal import EventLoop
internal import TokenService

extension ClientCertificate {
    /// - Parameters:
    ///   - certificate: The one that TLS has verified.
    ///   - name: Which of its names is the user.
    convenience init(_ certificate: TLSClientCertificate, named name: CertificateName) {
        let user =
            switch name {
            case .sanURI: certificate.uriName
            case .sanDNS: certificate.dnsName
            case .subjectCN: certificate.commonName
            }
        self.init(name: user, thumbprint: certificate.thumbprint)
    }
}
