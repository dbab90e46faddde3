internal import Foundation

extension LayeredTokenCache {
    /// What became of a write.
    private enum SendResult: Sendable {
        case sent(TokenBase)
        /// Another device has written something that counts more.
        case overtaken(by: VersionedToken)
    }

    /// Sends what waits in the queue, however long that takes.
    ///
    /// Call it when the network is back, or in a background task of the system.
    ///
    /// - Throws: Why something still waits: what the server's cache throws, or `TokenCacheError` if the queue cannot be read.
    public func synchronize() async throws {
        lookForOthers()
        while let write = try await record()?.write {
            let outcome = outcome(of: write.id)
            send()
            do {
                try await outcome.value()
            } catch TokenCacheError.conflict {
                // It is settled as well.
            }
            if let remoteError, try await record()?.write != nil { throw remoteError }
        }
    }

    /// Sends, and waits a moment for a write.
    func wait(for id: String) async {
        let outcome = outcome(of: id)
        send()
        try? await withTimeLimit(patience, clock: clock) { try await outcome.value() }
    }

    /// Begins to send, unless that is under way: it then goes on with whatever is in the queue.
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
                    // Nobody can be waiting for the writes before it.
                    releaseAll(but: write.id)
                    try await finish(write, try await send(record, write))
                    failures = 0
                    remoteError = nil
                }
            }
        } catch {
            remoteError = error
            await keepCredential()
            if (error as? TokenCacheError)?.isPermanent == true {
                report(error)
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

    /// Lets those who wait go on: their write is in the queue, or a later one has taken its place.
    private func releaseAll(but id: String? = nil) {
        for (other, outcome) in outcomes where other != id && !saving.contains(other) {
            outcomes[other] = nil
            outcome.finish(.success(()))
        }
    }

    /// Tries again after 1, 2, 4 seconds and so on, up to five minutes, each shortened at random by up to a half, and at least
    /// as long as the server asks for.
    ///
    /// The cache stays until then, though nobody else may have it any more.
    private func scheduleRetry(after least: Duration) {
        let seconds = Double(1 << min(failures - 1, 9))
        let delay = max(Duration.seconds(min(seconds, 300) * Double.random(in: 0.5...1)), least)
        retry = Task { [self] in
            guard (try? await clock.sleep(for: delay)) != nil else { return }
            send()
        }
    }

    /// Puts the credential that is being tried beside a sign-out that has none.
    func keepCredential() async {
        guard let credential = (remote as? RemoteTokenCache)?.credential, let record = try? await record(),
            record.information == nil, let write = record.write, write.credential == nil
        else { return }
        try? await change(isKept: false) { record in
            if record?.write?.id == write.id { record?.write?.credential = credential }
        }
    }

    /// Ends a write that has reached the server or was overtaken there.
    private func finish(_ write: LocalRecord.Write, _ result: SendResult) async throws {
        let save: @Sendable (inout LocalRecord?) -> Void = { record in
            let isLast = record?.write?.id == write.id
            switch result {
            case .sent(let base): record?.base = base
            case .overtaken(let current):
                record?.base = current.base
                if isLast { record = LocalRecord(current.information, base: current.base) }
            }
            if isLast { record?.write = nil }
        }
        // If it cannot be saved, the write is compared with the server once more, and found there.
        defer {
            switch result {
            case .sent: outcomes.removeValue(forKey: write.id)?.finish(.success(()))
            case .overtaken(let current):
                let conflict = TokenCacheError.conflict(current: current.information)
                outcomes.removeValue(forKey: write.id)?.finish(.failure(conflict))
            }
        }
        try await change(isKept: false, save)
    }

    // MARK: - One write

    private func send(_ record: LocalRecord, _ write: LocalRecord.Write) async throws -> SendResult {
        let isFirstTry = untried?.id == write.id
        let isUnconditional = isFirstTry && untried?.isUnconditional == true
        untried = nil
        var record = record
        if isUnconditional { record.base = .anything }
        guard record.information == nil else {
            return try await send(record, write, to: remote, isFirstTry: isFirstTry)
        }
        // The app may have nothing any more that shows the server who has signed out.
        if let credential = write.credential, let cache = (remote as? RemoteTokenCache)?.cache(by: credential) {
            do {
                return try await send(record, write, to: cache, isFirstTry: isFirstTry)
            } catch let error as TokenCacheError where error.isPermanent {}
        }
        return try await send(record, write, to: remote, isFirstTry: isFirstTry)
    }

    private func send(
        _ record: LocalRecord, _ write: LocalRecord.Write, to remote: any TokenCaching, isFirstTry: Bool
    ) async throws -> SendResult {
        var (base, logins) = (record.base, write.logins)
        let isSignOut = record.information == nil
        // A third device could write in the same moment again and again.
        for attempt in 0..<5 {
            // With nothing known, a token replaces what is there, unless it has waited. What others have ended must be known.
            if attempt > 0 || !isSignOut && (base != .anything || isFirstTry) {
                do {
                    return .sent(try await remote.write(record.information, replacing: base, ending: logins))
                } catch TokenCacheError.conflict {}
            }
            let current = try await remote.fetchWithBase()
            if current.holds(record.information, orEnded: write.logins) { return .sent(current.base) }
            guard Self.counts(record, write, over: current) else { return .overtaken(by: current) }
            base = current.base.justFetched
            logins.formUnion(current.endedLogins)
        }
        throw TokenCacheError.unavailable(status: 412, retryAfter: nil)
    }

    /// Whether a write counts more than what another device has left on the server meanwhile.
    private static func counts(
        _ record: LocalRecord, _ write: LocalRecord.Write, over current: VersionedToken
    ) -> Bool {
        let login = record.information?.loginID
        /// Whether the user has logged in on this device since it knew of any other login.
        let isNewLogin = login.map { !write.logins.contains($0) } ?? false
        switch current.content {
        case .nothingFound, .unreadable: return true
        case .none(let ended):
            // A sign-out from an earlier login does not end a new one.
            guard record.information != nil else { return true }
            return !(login.map(ended.contains) ?? false) && (isNewLogin || record.base == .anything)
        case .token(let found):
            let isOfKnownLogin = found.loginID.map(write.logins.contains)
            guard let information = record.information else {
                // Only a login that is new to those who have signed out is not ended by that.
                return isOfKnownLogin ?? true || record.base == .anything
            }
            if isNewLogin, isOfKnownLogin == true { return true }
            guard record.base == .anything else { return false }
            // Nothing else is known of which came first than the times that devices have written.
            guard let date = information.refreshDate, let other = found.refreshDate else { return true }
            return date >= other
        }
    }

    // MARK: - The writes of others

    /// Sends the sign-outs that are left on this device of users whose own caches are gone.
    func lookForOthers() {
        guard looksForOthers, let remote = remote as? RemoteTokenCache else { return }
        looksForOthers = false
        Task { [local, patience, clock] in
            for (other, credential) in (try? await local.waitingSignOuts()) ?? [] where other.user != local.user {
                guard let remote = remote.cache(by: credential) else { continue }
                let cache = LayeredTokenCache(local: other, remote: remote, patience: patience, clock: clock)
                await cache.stopLooking()
                do {
                    try await cache.synchronize()
                    // Nothing of a user who is gone stays here; one who has come back meanwhile has a token.
                    try await other.update { record in
                        if let known = record, known.write == nil, known.information == nil { record = nil }
                    }
                } catch {}
            }
        }
    }

    private func stopLooking() {
        looksForOthers = false
    }
}
