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
