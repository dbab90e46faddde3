import Foundation

extension LayeredTokenCache {
    /// How sending a write has ended.
    private enum SendResult: Sendable {
        case sent(TokenBase)
        /// Another device has written something that takes precedence.
        case overtaken(by: VersionedToken)
    }

    /// Sends what waits in the queue, however long that takes.
    ///
    /// Call it when the network is back, or in a background task of the system.
    ///
    /// - Throws: What the server's cache throws, if something still waits; `TokenCacheError` if the queue cannot be read.
    public func synchronize() async throws {
        lookForOthers()
        // A session returns a token before it has stored it.
        for finishWrites in writers.withLock({ $0 }) { await finishWrites() }
        while let write = try await record()?.write {
            let outcome = outcome(of: write.id)
            send()
            do {
                try await outcome.value()
            } catch TokenCacheError.conflict {
                // Nothing waits any more in this case either.
            }
            if let remoteError, try await record()?.write != nil { throw remoteError }
        }
    }

    /// Sends what waits, and waits for the outcome of one write, up to `patience`.
    func wait(for id: String) async {
        let outcome = outcome(of: id)
        send()
        try? await withTimeLimit(patience, clock: clock) { try await outcome.value() }
    }

    /// Begins to send; if sending is under way, it continues until the queue is empty.
    func send() {
        sendsAgain = true
        guard !isSending else { return }
        isSending = true
        retry?.cancel()
        Task { await sendAll() }
    }

    private func sendAll() async {
        do {
            while sendsAgain {
                sendsAgain = false
                while let record = try await record(), let write = record.write {
                    // It has replaced all earlier writes in the queue.
                    releaseAll(but: write.id)
                    try await finish(write, of: record, try await send(record, write))
                    failures = 0
                    remoteError = nil
                }
            }
        } catch {
            failed(by: error)
            await keepCredential()
            if (error as? TokenCacheError)?.isPermanent == true {
                // A later write may be accepted.
                if sendsAgain { return await sendAll() }
            } else {
                failures += 1
                var wait: Duration?
                if case .unavailable(_, let asked)? = error as? TokenCacheError { wait = asked }
                scheduleRetry(after: wait ?? .zero)
            }
        }
        isSending = false
        untried = nil
        releaseAll()
    }

    /// Ends the waits for writes: each is in the queue, or a later one has taken its place.
    private func releaseAll(but id: String? = nil) {
        for (other, outcome) in outcomes where other != id && !saving.contains(other) {
            outcomes[other] = nil
            outcome.finish(.success(()))
        }
    }

    /// Tries again after 1, 2, 4 seconds and so on, up to five minutes, each shortened at random by up to a half, but not
    /// earlier than the server asks for.
    ///
    /// The task keeps this cache alive until then.
    private func scheduleRetry(after least: Duration) {
        let seconds = Double(1 << min(failures - 1, 9))
        let delay = max(Duration.seconds(min(seconds, 300) * Double.random(in: 0.5...1)), least)
        retry = Task { [self] in
            guard (try? await clock.sleep(for: delay)) != nil else { return }
            send()
        }
    }

    /// Stores the credential of the last request with a waiting sign-out.
    func keepCredential() async {
        guard let credential = (remote as? RemoteTokenCache)?.credential, let record = try? await record(),
            record.information == nil, let write = record.write, write.credential != credential
        else { return }
        try? await change(isKept: false) { record in
            if record?.write?.id == write.id { record?.write?.credential = credential }
        }
    }

    /// Ends a write that has reached the server or was overtaken there.
    private func finish(_ write: LocalRecord.Write, of sent: LocalRecord, _ result: SendResult) async throws {
        let save: @Sendable (inout LocalRecord?) -> Void = { [isOthers] record in
            guard record?.write?.id == write.id else {
                guard case .sent(let base) = result else { return }
                if record?.base == sent.base {
                    // A later write follows this one.
                    record?.base = base
                } else if case .content = base, let current = record, current.write == nil, current.base != base {
                    // Another process has sent a later write, and a server without versions may have got this one after it.
                    record?.write = LocalRecord.Write(after: sent)
                }
                return
            }
            switch result {
            // Nothing stays here of a user who has left the device, and no token of a later login elsewhere after a sign-out, unless
            // somebody asks for it. If a token waits here, the user has come back.
            case .overtaken where record?.information == nil, .sent where isOthers && record?.information == nil:
                record = nil
            case .sent(let base):
                record?.base = base
                record?.write = nil
            case .overtaken(let current): record = LocalRecord(current.information, base: current.base)
            }
        }
        // If this cannot be saved, the write is sent again later, and turns out to be on the server already.
        defer {
            switch result {
            case .sent: outcomes.removeValue(forKey: write.id)?.finish(.success(()))
            case .overtaken(let current):
                let conflict = TokenCacheError.conflict(current: current.information)
                outcomes.removeValue(forKey: write.id)?.finish(.failure(conflict))
            }
        }
        do {
            try await change(isKept: false, save)
        } catch {
            guard case .sent = result, sent.information == nil else { throw error }
            // A full disk has no room for what stays of a sign-out; removing all of it needs none.
            try await change(isKept: false) { if $0?.write?.id == write.id { $0 = nil } }
        }
        if case .overtaken = result { report(.learned) }
    }

    // MARK: - One write

    private func send(_ record: LocalRecord, _ write: LocalRecord.Write) async throws -> SendResult {
        let isFirstTry = untried?.id == write.id
        let isUnconditional = isFirstTry && untried?.isUnconditional == true
        untried = nil
        guard record.information == nil else {
            return try await send(record, write, to: remote, isFirstTry: isFirstTry, isUnconditional)
        }
        // After the first try, the app may no longer have a session of the user who has signed out.
        if !isFirstTry, let credential = write.credential,
            let cache = (remote as? RemoteTokenCache)?.cache(by: credential)
        {
            do {
                return try await send(record, write, to: cache, isFirstTry: isFirstTry, isUnconditional)
            } catch let error as TokenCacheError where error.isPermanent {}
        }
        return try await send(record, write, to: remote, isFirstTry: isFirstTry, isUnconditional)
    }

    private func send(
        _ record: LocalRecord, _ write: LocalRecord.Write, to remote: any TokenCaching, isFirstTry: Bool,
        _ isUnconditional: Bool
    ) async throws -> SendResult {
        var (base, logins) = (record.base, write.logins)
        let isSignOut = record.information == nil
        // Limited, as a third device could write first again and again.
        for attempt in 0..<5 {
            // If nothing is known about the server, only a new login is sent at once, the first time. A sign-out first fetches
            // the logins that others have ended.
            if attempt > 0 || !isSignOut && (base != .anything || isFirstTry) {
                do {
                    return .sent(try await remote.write(record.information, replacing: base, ending: logins))
                } catch TokenCacheError.conflict {}
            }
            let current = try await remote.fetchWithBase()
            if current.holds(record.information, orEnded: write.logins) { return .sent(current.base) }
            guard Self.counts(record, write, over: current, isUnconditional) else { return .overtaken(by: current) }
            base = current.base.justFetched
            logins.formUnion(current.endedLogins)
        }
        throw TokenCacheError.unavailable(status: 412, retryAfter: nil)
    }

    /// Whether a write takes precedence over what another device has written meanwhile.
    private static func counts(
        _ record: LocalRecord, _ write: LocalRecord.Write, over current: VersionedToken, _ isUnconditional: Bool
    ) -> Bool {
        let login = record.information?.loginID
        /// Whether this device did not know the login before this write.
        let isNewLogin = login.map { !write.logins.contains($0) } ?? false
        switch current.content {
        case .nothingFound, .unreadable: return true
        case .none(let ended):
            guard record.information != nil else { return true }
            // A login that came after the sign-out stands.
            return !(login.map(ended.contains) ?? false) && (isNewLogin || record.base == .anything)
        case .token(let found):
            // This device's own, or what it has seen.
            if write.replaced.contains(SHA256.hexadecimal(found.token)) { return true }
            if write.replaced.contains(SHA256.hexadecimal(found.text)) { return true }
            let isOfKnownLogin = found.loginID.map(write.logins.contains)
            // A sign-out does not end a login that its device did not know.
            if record.information == nil { return isOfKnownLogin ?? true || isUnconditional }
            // Otherwise what this device did not know of stands, whatever the clocks say.
            return isNewLogin && isOfKnownLogin == true
        }
    }

    // MARK: - Sign-outs of other users

    /// Sends the sign-outs that wait on this device for users whose own caches are gone.
    func lookForOthers() {
        guard looksForOthers, let remote = remote as? RemoteTokenCache else { return }
        looksForOthers = false
        Task { [local, patience, clock] in
            for (other, credential) in (try? await local.waitingSignOuts()) ?? [] where other.user != local.user {
                guard let remote = remote.cache(by: credential) else { continue }
                let cache = LayeredTokenCache(local: other, remote: remote, patience: patience, clock: clock)
                try? await cache.synchronizeOthers()
            }
        }
    }

    private func synchronizeOthers() async throws {
        (looksForOthers, isOthers) = (false, true)
        try await synchronize()
    }
}

// A cache of the app's own in place of the server has no versions: what it contains is compared.
extension TokenCaching {
    /// What is there, and which version of it that is.
    func fetchWithBase() async throws -> VersionedToken {
        if let remote = self as? RemoteTokenCache { return try await remote.fetchVersion() }
        do {
            let information = try await fetch()
            return VersionedToken(
                content: information.map { .token($0) } ?? .none(), base: TokenBase(contentOf: information?.text))
        } catch let error as TokenCacheError {
            guard case .unreadable = error else { throw error }
            return VersionedToken(content: .unreadable(error), base: .anything)
        }
    }

    /// Stores or clears, if what is there is what the write is based on.
    func write(_ information: TokenInformation?, replacing base: TokenBase, ending logins: Set<String>) async throws
        -> TokenBase
    {
        if let remote = self as? RemoteTokenCache {
            return try await remote.replace(base, with: information, ending: logins)
        }
        if base != .anything {
            let current = try await fetchWithBase()
            if current.base != base { throw TokenCacheError.conflict(current: current.information) }
        }
        if let information {
            try await store(information)
        } else {
            try await clear()
        }
        return TokenBase(contentOf: information?.text)
    }
}
