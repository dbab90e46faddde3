internal import TokenService

extension Settings {
    /// Refuses a mode of access that cannot work, or that would let anybody be any user, for want of other settings.
    package func checkAccess() throws(SettingsError) {
        if let address = listen.first(where: { $0.clientCertificate != nil }), tls.clientAuthorities.isEmpty {
            throw .contradiction(
                """
                listen has \(address), and tls.client_ca is not set: no client's certificate could be verified; name a file \
                with the authorities that issue them
                """
            )
        }
        switch access.mode {
        case .open: break
        case .session:
            try require(
                access.apiKeysFile, "access.api.keys_file",
                """
                nobody could make sessions; name a file there, and make a key for the app's server with \
                `token-cache access keys add NAME --scope sessions`
                """
            )
        case .bearer:
            try require(
                access.bearer.issuer, "access.bearer.issuer",
                "no JWT could be accepted; name the issuer exactly as in the claim iss of its tokens"
            )
            try require(
                access.bearer.audiences.first, "access.bearer.audience",
                """
                tokens made for other services of the same issuer would be accepted; name the value that the claim aud has \
                in tokens for this server
                """
            )
            try require(
                access.bearer.keysFile, "access.bearer.keys_file",
                "no signature could be verified; name a file with the issuer's public keys (its JWKS)"
            )
        case .header:
            try require(
                access.headerName, "access.header.name",
                "no request would have a user; name the header that your proxy sets, such as Remote-User"
            )
            try checkAuthenticatingProxies()
        case .certificate:
            try require(
                tls.clientAuthorities, "tls.client_ca",
                "no client's certificate could be verified; name a file with the authorities that issue them"
            )
            guard listen.contains(where: { $0.isTLS || $0.place == .systemd }) else {
                throw .contradiction(
                    """
                    access.mode is certificate, and listen has no https:// address: clients can show certificates over TLS \
                    only; add one such as https://0.0.0.0:8443
                    """
                )
            }
        }
    }

    /// The default trusts every program on this machine, which is right for the scheme of a request but not for its user.
    private func checkAuthenticatingProxies() throws(SettingsError) {
        let standard = Settings().trustedProxies
        guard !trustedProxies.isEmpty else {
            throw .contradiction(
                """
                access.mode is header, and trusted_proxies is none: no request would have a user; name the addresses of \
                the proxies that authenticate, and nothing else
                """
            )
        }
        guard Set(trustedProxies) != Set(standard) else {
            let names = standard.map(\.description).joined(separator: ", ")
            throw .contradiction(
                """
                access.mode is header, and trusted_proxies has its default (\(names)): every program on this machine could \
                be any user; name the addresses of the proxies that authenticate, and nothing else, such as [127.0.0.1] or \
                [unix]
                """
            )
        }
    }

    private func require(_ value: String?, _ key: String, _ consequence: String) throws(SettingsError) {
        guard value ?? "" == "" else { return }
        throw .contradiction("access.mode is \(access.mode), and \(key) is not set: \(consequence)")
    }
}
