internal import EventLoop
internal import JWT
internal import Server
internal import Settings
internal import System
internal import TokenService

/// Checks who may read and write tokens, and the files that decide it.
enum AccessCheck {
    private static let topic = "Access"

    static func findings(_ settings: Settings, _ rights: Rights, now: Int64) -> [Finding] {
        [mode(settings)] + apiKeys(settings, rights, now: now)
    }

    private static func mode(_ settings: Settings) -> Finding {
        let mode = settings.access.mode
        guard mode == .open else { return .ok(topic, "access.mode is \(mode)") }
        let exposed = settings.listen.filter { !$0.isLocal }
        guard !exposed.isEmpty else {
            return .ok(topic, "access.mode is open, and only this machine reaches the addresses of listen")
        }
        return .warning(
            topic, AccessMode.openWarning(exposed.map(\.description)),
            "set access.mode, see \"Access\" in config/README.md, or let only clients that you trust reach the server"
        )
    }

    private static func apiKeys(_ settings: Settings, _ rights: Rights, now: Int64) -> [Finding] {
        var (keys, findings) = keys(settings.access.apiKeysFile, rights, now: now)
        let mayMakeSessions = keys?.contains { $0.scopes.contains(.sessions) && !$0.hasExpired(at: now) } ?? true
        if settings.access.mode == .session && !mayMakeSessions {
            findings.append(
                .warning(
                    topic, "no valid API key has the scope sessions, so no server can make sessions",
                    "make one: token-cache access keys add NAME --scope sessions"
                )
            )
        }
        return findings
    }

    /// The keys of a file, and the findings about it.
    ///
    /// The keys are nil if there is no file, or if it cannot be used, which a finding then explains.
    private static func keys(_ path: String, _ rights: Rights, now: Int64) -> ([APIKey]?, [Finding]) {
        guard !path.isEmpty else { return (nil, []) }
        if let refusal = rights.refusesReading(path, topic) { return (nil, [refusal]) }
        let keys: [APIKey]
        do throws(APIKeyFileError) {
            keys = try APIKeys.loadExisting(path).all
        } catch {
            return (nil, [.problem(topic, error)])
        }
        let expired = keys.filter { $0.hasExpired(at: now) }
        var findings = [
            Finding.ok(topic, "\(path) has \(keys.count) API \(keys.count == 1 ? "key" : "keys")")
        ]
        if !expired.isEmpty {
            findings.append(
                .warning(
                    topic, "API keys that have expired: \(expired.map(\.name).joined(separator: ", "))",
                    "remove each with token-cache access keys remove, after its user has a new one"
                )
            )
        }
        return (keys, findings)
    }
}

extension ListenAddress {
    /// Whether only this machine reaches the address, as far as its text tells.
    ///
    /// A host name may lead anywhere; what systemd listens on is not known.
    fileprivate var isLocal: Bool {
        switch place {
        case .unix, .systemd: true
        case .tcp(let host, let port):
            (try? SocketAddress.resolve(host: host, port: port).allSatisfy(\.isLoopback)) ?? false
        }
    }
}

/// Checks the issuer's public keys, with which JWTs are verified.
enum KeySetCheck {
    private static let topic = "JWT keys"

    static func findings(_ settings: Settings, _ rights: Rights) -> [Finding] {
        guard settings.access.mode == .bearer else { return [] }
        let path = settings.access.bearer.keysFile
        if let refusal = rights.refusesReading(path, topic) { return [refusal] }
        return keys(path, JWTRules(settings.access.bearer))
    }

    private static func keys(_ path: String, _ rules: JWTRules) -> [Finding] {
        let keys: JWTKeySet
        do throws(JWTKeyError) {
            keys = try JWTVerifier(keysOf: path, rules).keys
        } catch {
            return [.problem(topic, "\(path) \(error)")]
        }
        let others = keys.skipped.filter { !$0.reason.isFault }.map { "; \($0)" }.joined()
        return [.ok(topic, "\(path) has \(keys.count == 1 ? "1 key" : "\(keys.count) keys")\(others)")]
            + keys.skipped.filter(\.reason.isFault).map { key in
                .warning(topic, "\(path): \(key)", "ask the issuer for a correct key, or take it out of the file")
            }
    }
}

/// Checks the certificates and private keys of the settings.
enum CertificateCheck {
    private static let topic = "Certificates"
    /// Certificates that expire within this many seconds get a warning.
    private static let notice: Int64 = 14 * 86_400

    static func findings(_ settings: Settings, _ rights: Rights, now: Int64) -> [Finding] {
        guard !settings.tls.certificates.isEmpty else { return [.ok(topic, "none are set")] }
        let files = TLSFiles(settings)
        var findings = files.pairs.flatMap { pair in
            FileCheck.privateKey(pair.privateKey, topic)
                + (unreadable([pair.certificateChain, pair.privateKey], rights) ?? [certificate(pair, now: now)])
        }
        if let file = files.clientAuthorities { findings += unreadable([file], rights) ?? authorities(file, now: now) }
        return findings
    }

    /// A finding if this user may not read a file, or if it exists only while the service runs; nil if all can be examined.
    private static func unreadable(_ paths: [String], _ rights: Rights) -> [Finding]? {
        // One file may hold certificate and key.
        let paths = paths.count == 2 && paths[0] == paths[1] ? [paths[0]] : paths
        var findings = paths.compactMap { rights.refusesReading($0, topic) }
        findings += paths.filter(StoreCredential.isTransient).map {
            .warning(
                topic, "\($0) is a credential, which is there only while the service runs",
                "run token-cache doctor again while the service runs"
            )
        }
        return findings.isEmpty ? nil : findings
    }

    private static func certificate(_ pair: TLSFiles.Pair, now: Int64) -> Finding {
        do throws(TLSConfigurationError) {
            return dates(of: try TLSContext.examine(pair), now: now)
        } catch {
            return .problem(topic, error)
        }
    }

    private static func authorities(_ file: String, now: Int64) -> [Finding] {
        do throws(TLSConfigurationError) {
            let authorities = try TLSContext.examine(authorities: file)
            return [.ok(topic, authorities.trust)]
                + authorities.warnings(at: now).map { warning in
                    let parts = warning.split(separator: "; ", maxSplits: 1).map(String.init)
                    return .warning(topic, parts[0], parts.last ?? "")
                }
        } catch {
            return [.problem(topic, error)]
        }
    }

    static func dates(of certificate: TLSCertificate, now: Int64) -> Finding {
        let (path, expiry) = (certificate.path, certificate.expiry)
        let renewal = "renew it; the server reads it by itself when the file changes"
        let day = LogTime.text(expiry).prefix { $0 != "T" }
        if now < certificate.start {
            let first = LogTime.text(certificate.start).prefix { $0 != "T" }
            return .problem(
                topic, "\(path) is not valid before \(first)",
                "check that the clock is right, or use another certificate")
        }
        if now >= expiry { return .problem(topic, "\(path) has expired on \(day)", renewal) }
        let names = certificate.names.isEmpty ? "no name" : certificate.names.joined(separator: ", ")
        let text = "\(path) for \(names) is valid until \(day)"
        return expiry - now < notice ? .warning(topic, "\(text), for less than 14 days", renewal) : .ok(topic, text)
    }
}
