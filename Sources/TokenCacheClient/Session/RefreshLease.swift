import Foundation

/// One refresh at a time for all devices that share a token.
///
/// Before a refresh, a device reads the server's token. If it is another one, that is taken. Otherwise the device writes the token
/// back with one more member, the lease, if nobody has written meanwhile (`If-Match`), and then asks the provider. The new
/// token replaces the lease; after a failure, the device writes the token back without it. Clients that do not know the
/// member keep it, as they keep all others.
///
/// A device that finds another's lease looks again, until there is another token, or until that version has stood for
/// the lease's time: its device has died. That time is the sum of the device's own waits, so the clocks of the two need not agree.
enum RefreshLease {
    /// How long a device that dies keeps the others waiting.
    static let time = Duration.seconds(60)
    fileprivate static let member = "TokenCacheClient:RefreshLease"

    /// The value of the member: which token is leased, and by which device.
    ///
    /// An app may copy the member to its next token, for which it must not count.
    static func text(for token: String, of device: String) -> String {
        SHA256.hexadecimal(token) + " " + device
    }

    /// The token must not be sent to the provider again; see `spent`.
    struct IsSpent: Error {}

    /// The value that a server leaves which refreshes tokens: the provider has refused this token, or may have used it up.
    static func spent(_ token: String) -> String { text(for: token, of: "spent") }
}

extension VersionedToken {
    /// Separates the lease from the token: a lease that comes or goes is no change of the token.
    mutating func takeLease() {
        guard case .token(var information) = content,
            let found = information.others.removeValue(forKey: RefreshLease.member)
        else { return }
        content = .token(information)
        if found.string?.hasPrefix(SHA256.hexadecimal(information.token)) == true { lease = found.string }
    }
}

extension TokenInformation {
    func text(with lease: String?) -> String {
        guard let lease else { return text }
        var leased = self
        leased.others[RefreshLease.member] = .string(lease)
        return leased.text
    }
}

extension TokenCaching {
    /// Reads the token before a refresh, and keeps other devices from refreshing it, if the cache has versions.
    ///
    /// - Parameters:
    ///   - old: The token that is to be refreshed.
    ///   - device: Stands for this device.
    ///   - isOver: Whether nobody wants the refresh any more.
    /// - Returns: What is there: the old token, to be refreshed, with a lease if that is this device's; or something newer.
    /// - Throws: `RefreshLease.IsSpent`.
    func beginRefresh(
        of old: TokenInformation, by device: String, clock: any Clock<Duration>,
        unless isOver: @Sendable () async -> Bool
    ) async throws -> VersionedToken {
        switch self {
        case let cache as LayeredTokenCache:
            return try await cache.beginRefreshOnServer(of: old, by: device, clock: clock, unless: isOver)
        case let cache as RemoteTokenCache:
            return try await cache.beginRefreshOnServer(of: old, by: device, clock: clock, unless: isOver)
        default: return try await fetchWithBase()
        }
    }

    /// Lets other devices refresh the token; storing the new token does so as well.
    func endRefresh(_ begun: VersionedToken) async {
        guard begun.lease != nil else { return }
        if let cache = self as? LayeredTokenCache { return await cache.endRefreshOnServer(begun) }
        _ = try? await (self as? RemoteTokenCache)?.replace(begun.base, with: begun.information)
    }
}

extension RemoteTokenCache {
    fileprivate func beginRefreshOnServer(
        of old: TokenInformation, by device: String, clock: any Clock<Duration>,
        unless isOver: @Sendable () async -> Bool
    ) async throws -> VersionedToken {
        let lease = RefreshLease.text(for: old.token, of: device)
        var (seen, waited, pause) = (TokenBase.anything, Duration.zero, Duration.zero)
        var refused: TokenBase?
        while true {
            var found = try await fetchVersion()
            var isPossible = await !isOver()
            if isPossible, found.lease == RefreshLease.spent(old.token), found.information?.token == old.token {
                throw RefreshLease.IsSpent()
            }
            switch (found.content, found.base) {
            // The version that was refused is still there, so a proxy changes entity tags (those that compress make them weak, or
            // add a suffix), and no condition ever matches.
            case _ where found.base == refused: isPossible = false
            case (.token(let token), .version): isPossible = isPossible && token.token == old.token
            // The store is empty by mistake.
            case (.nothingFound, .nothing): found.content = .token(old)
            default: isPossible = false
            }
            guard isPossible else {
                found.lease = nil
                return found
            }
            if found.base != seen { (seen, waited, pause) = (found.base, .zero, .milliseconds(250)) }
            if let other = found.lease, other != lease, waited < RefreshLease.time {
                try await clock.sleep(for: pause)
                waited += pause
                pause = min(pause * 2, .seconds(5))
                continue
            }
            do {
                found.base = try await replace(found.base, with: found.information, lease: lease)
                found.lease = lease
                return found
            } catch TokenCacheError.conflict {
                refused = found.base
            }
        }
    }
}

extension LayeredTokenCache {
    fileprivate func beginRefreshOnServer(
        of old: TokenInformation, by device: String, clock: any Clock<Duration>,
        unless isOver: @Sendable () async -> Bool
    ) async throws -> VersionedToken {
        // The server must have what this device has written.
        try await synchronize()
        let known = try await record()
        // By another process.
        if let known, known.information?.token != old.token {
            return VersionedToken(content: known.information.map { .token($0) } ?? .none(), base: known.base)
        }
        let found = try await remote.beginRefresh(of: old, by: device, clock: clock, unless: isOver)
        switch found.content {
        case .token, .none: await keep(found, after: known)
        case .nothingFound, .unreadable: break
        }
        return found
    }

    fileprivate func endRefreshOnServer(_ begun: VersionedToken) async {
        guard let base = try? await (remote as? RemoteTokenCache)?.replace(begun.base, with: begun.information) else {
            return
        }
        try? await change(isKept: false) { record in
            if record?.base == begun.base, record?.write == nil { record?.base = base }
        }
    }
}
