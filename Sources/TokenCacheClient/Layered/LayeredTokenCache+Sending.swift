internal import Foundation

extension LayeredTokenCache {
    /// The outcome of a write.
    enum SendResult: Sendable {
        case sent(TokenBase)
        /// Another device has written something newer.
        case overtaken(by: VersionedToken)

        var base: TokenBase {
            switch self {
            case .sent(let base): base
            case .overtaken(let current): current.base
            }
        }
    }

    /// Sends what waits in the queue, however long that takes.
    ///
    /// Call it when the network is back, or in a background task of the system.
    ///
    /// - Throws: Why something still waits: what the server's cache throws, or `TokenCacheError` if the queue cannot be read.
    public func synchronize() async throws {
        while let entry = try queue.read() {
            let outcome = outcome(of: entry.write.id)
            send()
            do {
                try await outcome.value()
            } catch TokenCacheError.conflict {
                // It is settled as well.
            }
            if let remoteError, try queue.read() != nil { throw remoteError }
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
        guard !isSending else { return }
        isSending = true
        retry?.cancel()
        Task { await sendAll() }
    }

    private func sendAll() async {
        do {
            while let entry = try queue.read() {
                // Nobody can be waiting for the writes before it.
                releaseAll(but: entry.write.id)
                let result = try await send(entry.write)
                try await turns.run { try await self.finish(entry, result) }
                failures = 0
                remoteError = nil
            }
            isSending = false
        } catch {
            remoteError = error
            isSending = false
            failures += 1
            scheduleRetry()
        }
        releaseAll()
    }

    /// Lets those who wait go on: their write is in the queue, or a later one has taken its place.
    private func releaseAll(but id: String? = nil) {
        for (other, outcomes) in waiting where other != id {
            waiting[other] = nil
            for outcome in outcomes { outcome.finish(.success(())) }
        }
    }

    /// Tries again after 1, 2, 4 seconds and so on, up to five minutes, each shortened at random by up to a half.
    private func scheduleRetry() {
        let seconds = Double(1 << min(failures - 1, 9))
        let delay = Duration.seconds(min(seconds, 300) * Double.random(in: 0.5...1))
        retry = Task { [weak self, clock] in
            guard (try? await clock.sleep(for: delay)) != nil else { return }
            await self?.send()
        }
    }

    // MARK: - One write

    private func send(_ write: WriteQueue.Write) async throws -> SendResult {
        // Made just now and with nothing known, it replaces what is there.
        let isFirstTry = untried == write.id
        untried = nil
        if write.base == .anything, !isFirstTry { return try await compareAndSend(write) }
        do {
            return .sent(try await remote.write(write.information, replacing: write.base))
        } catch TokenCacheError.conflict {
            return try await compareAndSend(write)
        }
    }

    /// Sends a write only if it is newer than what the server has.
    private func compareAndSend(_ write: WriteQueue.Write) async throws -> SendResult {
        let current = try await remote.fetchWithBase()
        if current.information == write.information { return .sent(current.base) }
        if let information = current.information {
            if write.isOlder(than: information) { return .overtaken(by: current) }
        } else if case .version = write.base {
            // There was a token when the write was made: somebody has signed out since.
            return .overtaken(by: current)
        }
        do {
            return .sent(try await remote.write(write.information, replacing: current.base))
        } catch TokenCacheError.conflict {
            // A third device in the same moment.
            return .overtaken(by: try await remote.fetchWithBase())
        }
    }
}

extension TokenCaching {
    /// The token with its version, if the cache has versions.
    func fetchWithBase() async throws -> VersionedToken {
        if let versioned = self as? any ConditionalTokenCaching { return try await versioned.fetchVersion() }
        return VersionedToken(information: try await fetch(), base: .anything)
    }

    /// Stores or clears, under the condition if the cache has versions.
    func write(_ information: TokenInformation?, replacing base: TokenBase) async throws -> TokenBase {
        if let versioned = self as? any ConditionalTokenCaching {
            return try await versioned.replace(base, with: information)
        }
        if let information {
            try await cache(information)
        } else {
            try await clear()
        }
        return .anything
    }
}
