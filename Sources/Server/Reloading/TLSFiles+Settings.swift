package import EventLoop
package import Settings

extension TLSFiles {
    /// The files that `tls.certificate`, `tls.private_key` and `tls.client_authorities` name.
    ///
    /// - Parameter settings: Must name at least one pair of certificate and key.
    package init(_ settings: Settings) {
        var pairs: [Pair] = []
        for (certificate, key) in zip(settings.tls.certificates, settings.tls.privateKeys) {
            pairs.append(Pair(certificateChain: certificate, privateKey: key))
        }
        let authorities = settings.tls.clientAuthorities
        self.init(
            standard: pairs[0], others: Array(pairs.dropFirst()),
            clientAuthorities: authorities.isEmpty ? nil : authorities
        )
    }
}
