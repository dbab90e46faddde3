public import Foundation

/// A local cache with a remote one behind it: works without a network, and starts logged in on the next device.
///
/// - **Fetching** asks the server, for which it waits only a moment if there is a token on this device; if there is none, or it
///   cannot be read, the server's answer decides. What the server says is kept here. Unknown is never taken for none.
/// - **Storing and clearing** are put into a queue on the disk, then done here, then sent. Without a network they return, and
///   are sent later: by retries of this object, by the next call, or by `synchronize()`, also after a restart.
/// - **An older write never replaces a newer one.** The queue holds only the last write of this device. Before a write that has
///   waited is sent, it is compared with what is on the server: by entity tags where the server has them, and by the times at
///   which tokens were obtained. If another device has written something newer, that is kept.
///
/// Two processes, such as an app and its extension, may share the local cache and the queue. Usable from any task.
public actor LayeredTokenCache: TokenCaching {
    let local: any TokenCaching
    let remote: any TokenCaching
    let queue: WriteQueue
    let clock: any Clock<Duration>
    let patience: Duration
    let now: @Sendable () -> Date
    /// Changes of the queue and the local cache.
    let turns = Turns()

    /// Why the server could not be asked or written to the last time; nil if it could.
    ///
    /// For example `TokenCacheError.unauthorized`: the session was revoked, and the app should get another one.
    public internal(set) var remoteError: (any Error)?

    /// What is known of the server's state.
    var base = TokenBase.anything
    /// How many writes there were, so that an answer that was asked for before them is not taken for the present.
    private var writeCount = 0
    /// The callers that wait for a write to be sent, by its id.
    var waiting: [String: [Outcome<Void>]] = [:]
    /// The question to the server that is under way, and how many writes there were before it.
    private var asking: (writes: Int, task: Task<TokenInformation?, any Error>)?
    /// The write that was made just now and has not been tried yet.
    var untried: String?
    var isSending = false
    var failures = 0
    var retry: Task<Void, Never>?

    /// A cache in two layers.
    ///
    /// - Parameters:
    ///   - local: The user's token on this device.
    ///   - remote: The same user's token on the server.
    ///   - queue: A file for the write that waits for the network, one for each user, best in the folder of the local cache. It
    ///     contains a token, and is as private as the local cache's file.
    ///   - clock: What waits are measured by.
    ///   - patience: How long to wait for the server when there is another answer.
    ///   - now: The device's clock.
    public init(
        local: any TokenCaching, remote: any TokenCaching, queue: URL, clock: any Clock<Duration> = ContinuousClock(),
        patience: Duration = .seconds(2), now: @escaping @Sendable () -> Date = { Date() }
    ) {
        self.local = local
        self.remote = remote
        self.queue = WriteQueue(file: PrivateFile(url: queue))
        self.clock = clock
        self.patience = patience
        self.now = now
    }

    deinit {
        retry?.cancel()
    }

    // MARK: - Fetching

    /// The token: the server's if it answers in time, otherwise this device's.
    ///
    /// - Throws: What the server's cache throws if there is no token on this device; `TokenCacheError` if the queue cannot be
    ///   read.
    public func fetch() async throws -> TokenInformation? {
        if let entry = try queue.read() { return try await fetch(after: entry) }
        let kept = try? await local.fetch()
        let asked = ask()
        guard let kept else { return try await asked.value }
        do {
            return try await withTimeLimit(patience, clock: clock) { try await asked.value }
        } catch let error where !(error is CancellationError) {
            // A late answer still comes, and is kept for the next time.
            return kept
        }
    }

    /// This device has written something that the server may not know: that is the present, unless it is overtaken.
    private func fetch(after entry: WriteQueue.Entry) async throws -> TokenInformation? {
        // The process may have ended between the queue and the local cache.
        try? await turns.run { try await self.applyQueue() }
        await wait(for: entry.write.id)
        if let entry = try queue.read() { return entry.write.information }
        return try await local.fetch()
    }

    private func applyQueue() async throws {
        guard let write = try queue.read()?.write else { return }
        if let information = write.information {
            if (try? await local.fetch()) != information { try await local.cache(information) }
        } else {
            try await local.clear()
        }
    }

    /// Asks the server, once for all who ask at the same time.
    private func ask() -> Task<TokenInformation?, any Error> {
        let count = writeCount
        if let asking, asking.writes == count { return asking.task }
        let task = Task {
            defer { if asking?.writes == count { asking = nil } }
            return try await ask(asOf: count)
        }
        asking = (count, task)
        return task
    }

    /// Asks the server, and keeps its answer on this device unless something was written meanwhile.
    private func ask(asOf count: Int) async throws -> TokenInformation? {
        let answer: VersionedToken
        do {
            answer = try await remote.fetchWithBase()
            remoteError = nil
        } catch {
            remoteError = error
            throw error
        }
        return try await turns.run { try await self.keep(answer, asOf: count) }
    }

    private func keep(_ answer: VersionedToken, asOf count: Int) async throws -> TokenInformation? {
        if let write = try queue.read()?.write { return write.information }
        guard count == writeCount else { return try await local.fetch() }
        base = answer.base
        await keep(answer.information)
        return answer.information
    }

    /// Keeps what the server has; if that fails, the server is asked again the next time anyway.
    private func keep(_ information: TokenInformation?) async {
        if let information {
            if (try? await local.fetch()) != information { try? await local.cache(information) }
        } else {
            try? await local.clear()
        }
    }

    // MARK: - Writing

    /// Stores the token: queued, kept on this device, and sent, for which it waits a moment.
    ///
    /// - Throws: `TokenCacheError.conflict` if another device has stored or cleared something newer, which is then also what is
    ///   on this device. What the local cache throws, although the token is in the queue. An error if the queue cannot be
    ///   written: nothing has changed then.
    public func cache(_ information: TokenInformation) async throws {
        try await write(information)
    }

    /// Clears the token: queued, cleared on this device, and sent, for which it waits a moment.
    ///
    /// - Throws: As `cache`.
    public func clear() async throws {
        try await write(nil)
    }

    private func write(_ information: TokenInformation?) async throws {
        let outcome = try await turns.run { try await self.enqueue(information) }
        send()
        do {
            try await withTimeLimit(patience, clock: clock) { try await outcome.value() }
        } catch TokenCacheError.timedOut {
            // It is in the queue.
        }
    }

    /// Returns what will become of the write; it could be sent before this returns.
    private func enqueue(_ information: TokenInformation?) async throws -> Outcome<Void> {
        let write = WriteQueue.Write(information: information, base: base, madeAt: now())
        try queue.write(write)
        let outcome = outcome(of: write.id)
        untried = write.id
        writeCount += 1
        if let information {
            try await local.cache(information)
        } else {
            try await local.clear()
        }
        return outcome
    }

    /// The outcome of a write, for a caller that waits for it.
    func outcome(of id: String) -> Outcome<Void> {
        let outcome = Outcome<Void>()
        waiting[id, default: []].append(outcome)
        return outcome
    }

    /// Ends a write that has reached the server or was overtaken there.
    func finish(_ entry: WriteQueue.Entry, _ result: SendResult) async throws {
        base = result.base
        let isLast = try queue.remove(entry)
        if case .overtaken(let current) = result {
            writeCount += 1
            if isLast { await keep(current.information) }
        }
        for outcome in waiting.removeValue(forKey: entry.write.id) ?? [] {
            switch result {
            case .sent: outcome.finish(.success(()))
            case .overtaken(let current):
                outcome.finish(.failure(TokenCacheError.conflict(current: current.information)))
            }
        }
    }
}
