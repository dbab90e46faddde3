import HTTP
import JWT
import TokenService

extension Settings {
    private func files(_ count: Int) -> String { count == 1 ? "1 file" : "\(count) files" }

    /// Refuses values that contradict each other although each is allowed.
    func checkTogether() throws(SettingsError) {
        // For a body in a buffer that has just doubled in size, and the row that is made from it.
        guard bufferLimit >= 4 * limits.body else {
            throw .contradiction(
                """
                limits.buffers is \(Quantities.text(bytes: bufferLimit)), too little for limits.body with \
                \(Quantities.text(bytes: limits.body)): one client can take four times a body
                """
            )
        }
        let (certificates, keys) = (tls.certificates.count, tls.privateKeys.count)
        guard certificates == keys else {
            throw .contradiction(
                "tls.certificate names \(files(certificates)) and tls.private_key \(files(keys)); each certificate needs its key"
            )
        }
        if let address = listen.first(where: \.isTLS), certificates == 0 {
            throw .contradiction("listen has \(address), and tls.certificate and tls.private_key name no files for it")
        }
        var seen: Set<ListenAddress> = []
        for address in listen + admin.listen where !address.isChosenBySystem {
            // Options make no difference; sockets that systemd passes are several, and differ in them.
            let place = address.place == .systemd ? address : ListenAddress(place: address.place)
            guard seen.insert(place).inserted else {
                throw .contradiction(
                    "listen and admin.listen have \(place) twice; name it once, and set listen: systemd if a socket unit replaces it"
                )
            }
        }
        try checkStore()
        try checkAccess()
        try checkRefresh()
    }
}

extension Settings {
    /// Refuses a mode of access if settings are missing without which it cannot work, or would let anybody be any user.
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
                access.bearer.rules.issuer, "access.bearer.issuer",
                "no JWT could be accepted; name the issuer exactly as in the claim iss of its tokens"
            )
            try require(
                access.bearer.rules.audiences.first, "access.bearer.audience",
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

extension Settings {
    /// Refuses settings of the kind of store that is not used: they would have no effect, although an operator relies on them.
    ///
    /// A setting that has its default is not refused, wherever it is given: a file often contains all of them.
    func checkStore() throws(SettingsError) {
        let unused = store.url.isEmpty ? Self.ofDatabase : Self.ofSQLite
        for (key, reason) in unused {
            guard let setting = Setting.all.first(where: { $0.key == key }) else {
                preconditionFailure("there is no setting \(key)")
            }
            let value = setting.show(self)
            guard value != setting.default, Self.harmless[key] != value else { continue }
            throw .contradiction(
                "\(key) is \(value), and store.url is \(store.url.isEmpty ? "empty" : "set"): \(reason)"
            )
        }
    }

    /// Settings without effect on a database, and what takes their place there.
    private static let ofSQLite = [
        (
            "store.max_bytes",
            """
            a database that several servers use cannot be limited here; remove this setting, and give the database a tablespace on \
            a volume of the size that it may have
            """
        ),
        (
            "cache.max_bytes",
            """
            answers are not cached, as other servers may change the tokens; remove this setting, and give the database enough \
            memory instead (shared_buffers)
            """
        ),
    ]

    /// Settings without effect on SQLite.
    private static let ofDatabase = ["store.connections", "store.durability"].map { key in
        (
            key,
            """
            it is for a PostgreSQL database, and tokens are stored with SQLite in data_directory; set store.url as well, or remove \
            this setting
            """
        )
    }

    /// Values that are accepted, as they describe what the server does anyway.
    private static let harmless = ["cache.max_bytes": "0"]
}

extension Settings {
    /// Refuses to refresh tokens if settings are missing without which that cannot work.
    func checkRefresh() throws(SettingsError) {
        if refresh.hidesRefreshTokens, refresh.provider == nil || refresh.provider == .facebook {
            throw .contradiction(
                """
                refresh.hide_refresh_tokens is on, and refresh.provider is \(refresh.provider?.rawValue ?? "off"): nobody could use the \
                refresh tokens that the server hides; set refresh.provider to oauth2 or oauth2-post, or turn this off
                """)
        }
        guard let provider = refresh.provider else { return }
        func refuse(_ reason: String) -> SettingsError {
            .contradiction("refresh.provider is \(provider.rawValue), and \(reason)")
        }
        #if !TokenRefresh
        throw refuse(
            """
            this token-cache was built without TokenRefresh; build it with deploy/build --traits TokenRefresh, or remove this setting
            """)
        #else
        if refresh.clientID.isEmpty {
            throw refuse("refresh.client_id is not set: the provider would not know the app; name its id there")
        }
        if refresh.url.isEmpty, provider != .facebook {
            throw refuse("refresh.url is not set: nobody knows whom to ask; name the provider's token endpoint there")
        }
        #endif
    }
}
