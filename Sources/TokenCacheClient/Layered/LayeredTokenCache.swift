internal import Foundation

/// A local cache with a remote one behind it: works without a network, and starts logged in on the next device.
///
/// - **Fetching** asks the server, for which it waits only a moment if this device knows whether there is a token; if it does not,
///   the server's answer decides. What the server says is kept here. Unknown is never taken for none.
/// - **Storing and clearing** are done and queued here in one step, then sent. Without a network they return, and are sent later:
///   by retries, by the next call, or by `synchronize()`, also after a restart.
/// - **Between devices, the server's versions decide, never clocks.** Each write names the version of the token that this device
///   last saw on the server. If another device has written since, the other device's write stands, with two exceptions: a login is not ended by a sign-out from
///   an earlier one, and a sign-out ends the logins that its device knew, however often their tokens were refreshed elsewhere.
/// - **A sign-out stays in the queue until the server has it**, with the credential to send it. If its user never comes back, the
///   next cache for the same place on this device sends it: a place is for the users of one server.
///
/// Two processes, such as an app and its extension, may share the local cache. Usable from any task.
public actor LayeredTokenCache: TokenCaching {
    let local: LocalTokenCache
    let remote: any TokenCaching
    let clock: any Clock<Duration>
    let patience: Duration

    /// Why the server could not be asked or written to the last time; nil if it could.
    ///
    /// For example `TokenCacheError.unauthorized`: the session was revoked, and the app should get another one. A write that was
    /// refused like that is not retried until the app calls something, or starts again.
    public internal(set) var remoteError: (any Error)?

    /// Changes of what is known.
    private let turns = Turns()
    /// What could not be saved, for example on a full disk: it counts in place of what is there.
    private var unsaved: LocalRecord?
    /// What becomes of writes, by their ids.
    var outcomes: [String: Outcome<Void>] = [:]
    /// The question to the server that is under way, and what was known before it.
    private var asking: (known: LocalRecord?, answer: Outcome<TokenInformation?>)?
    /// The write that was made just now and has not been tried yet, and whether it replaces whatever is there.
    var untried: (id: String, isUnconditional: Bool)?
    /// Writes that are just being put into the queue.
    var saving: Set<String> = []
    var isSending = false
    /// Whether something was written or asked to be sent while it was sending.
    var sendsAgain = false
    var failures = 0
    var retry: Task<Void, Never>?
    /// Whether it looks for the sign-outs of others.
    var looksForOthers = true
    nonisolated let reports = Locked<[@Sendable (any Error) -> Void]>([])

    /// A cache in two layers.
    ///
    /// - Parameters:
    ///   - local: The user's token on this device, with what waits for the network.
    ///   - remote: The same user's token on the server.
    ///   - patience: How long to wait for the server when there is another answer: less than a session waits for its cache.
    ///   - clock: What waits are measured by.
    public init(
        local: LocalTokenCache, remote: any TokenCaching, patience: Duration = .seconds(1),
        clock: any Clock<Duration> = ContinuousClock()
    ) {
        self.local = local
        self.remote = remote
        self.clock = clock
        self.patience = patience
    }

    // MARK: - What is known

    /// What this device knows; nil if nothing.
    func record() async throws(TokenCacheError) -> LocalRecord? {
        if let unsaved { return unsaved }
        do {
            return try await local.record()
        } catch TokenCacheError.unreadable {
            // Nobody can use it; the server's answer or the next token replaces it.
            return nil
        }
    }

    /// Changes what is known, on the disk if possible.
    ///
    /// - Parameters:
    ///   - isKept: Whether the change counts here if it cannot be saved.
    ///   - change: May be called twice.
    /// - Throws: Why it could not be saved.
    func change(isKept: Bool, _ change: @escaping @Sendable (inout LocalRecord?) -> Void) async throws {
        try await turns.run { try await self.changeNow(isKept, change) }
    }

    private func changeNow(_ isKept: Bool, _ change: @Sendable (inout LocalRecord?) -> Void) async throws {
        let earlier = unsaved
        do {
            try await local.update { record in
                if let earlier { record = earlier }
                change(&record)
            }
            unsaved = nil
        } catch {
            if isKept || earlier != nil {
                var record = earlier
                if record == nil { record = try? await local.record() }
                change(&record)
                unsaved = record
            }
            throw error
        }
    }

    // MARK: - Fetching

    /// The token: the server's if it answers in time, otherwise what this device knows.
    ///
    /// - Throws: What the server's cache throws if this device does not know whether there is a token; `TokenCacheError.locked` and
    ///   `.storage` if what it knows cannot be read now: that may be a sign-out which the server does not have.
    public func fetch() async throws -> TokenInformation? {
        lookForOthers()
        var known: LocalRecord?
        do {
            known = try await record()
        } catch {
            guard case .laterFormat = error else { throw error }
        }
        if let write = known?.write {
            // This device has written something that the server may not know: that is the present, unless it is overtaken.
            await wait(for: write.id)
            return try await record()?.information
        }
        let answer = ask(known)
        guard let known else { return try await answer.value() }
        do {
            return try await withTimeLimit(patience, clock: clock) { try await answer.value() }
        } catch let error where !(error is CancellationError) {
            // A late answer still comes, and is kept for the next time.
            return ((try? await record()) ?? known)?.information
        }
    }

    /// Asks the server, once for all who ask at the same time.
    private func ask(_ known: LocalRecord?) -> Outcome<TokenInformation?> {
        if let asking, asking.known == nil ? known == nil : asking.known?.isSame(as: known) == true {
            return asking.answer
        }
        let answer = Outcome { try await self.asked(known) }
        asking = (known, answer)
        return answer
    }

    private func asked(_ known: LocalRecord?) async throws -> TokenInformation? {
        defer { asking = nil }
        let answer: VersionedToken
        do {
            answer = try await remote.fetchWithBase()
            remoteError = nil
            if case .unreadable(let error) = answer.content { throw error }
        } catch {
            remoteError = error
            if (error as? TokenCacheError)?.isPermanent == true { report(error) }
            throw error
        }
        // An answer that does not say whether the server has failed is no reason to forget a token.
        if answer.isUnexplained, let information = known?.information { return information }
        let new = LocalRecord(answer.information, base: answer.base)
        // What cannot be saved is asked for again the next time.
        try? await change(isKept: false) { record in
            // Written meanwhile, here or by another process: what was answered is older than that.
            let isAsBefore = record.map { $0.isSame(as: known) } ?? (known == nil)
            if isAsBefore, !new.isSame(as: record) { record = new }
        }
        guard let record = try? await record() else { return answer.information }
        return record.information
    }

    // MARK: - Writing

    /// Stores the token: kept and queued on this device, and sent, for which it waits a moment.
    ///
    /// - Throws: `TokenCacheError.conflict` if another device has stored or cleared something meanwhile, which is then also what
    ///   is on this device. What the local cache throws, although the token was sent if the server could be reached.
    public func store(_ information: TokenInformation) async throws {
        try await write(information)
    }

    /// Clears the token: here and queued, and sent, for which it waits a moment.
    ///
    /// - Throws: What the local cache throws, if the sign-out has not reached the server and cannot be queued either: it is then
    ///   lost if the process ends.
    public func clear() async throws {
        do {
            try await write(nil)
        } catch TokenCacheError.conflict {
            // Somebody has logged in since, on another device: that is another login.
        }
    }

    private func write(_ information: TokenInformation?) async throws {
        // A task that is cancelled in the middle stops waiting, and the write goes on: half of a sign-out is none.
        try await Outcome { try await self.begin(information) }.value()
    }

    private func begin(_ information: TokenInformation?) async throws {
        lookForOthers()
        let id = UUID().uuidString
        // A sign-out comes after everything that is on the server now, unless this device knows that it has signed out before.
        let known = try? await record()
        let hasSignedOut = known.map { $0.information == nil && $0.write?.logins.isEmpty != false } ?? false
        untried = (id, information == nil && !hasSignedOut)
        let outcome = outcome(of: id)
        let credential = information == nil ? (remote as? RemoteTokenCache)?.credential : nil
        let save: @Sendable (inout LocalRecord?) -> Void = { record in
            var logins = record?.write?.logins ?? []
            if let login = record?.information?.loginID { logins.insert(login) }
            record = LocalRecord(
                information, base: record?.base ?? .anything,
                write: LocalRecord.Write(id: id, logins: logins, credential: credential))
        }
        saving.insert(id)
        var failure: (any Error)?
        do {
            try await change(isKept: true, save)
        } catch {
            failure = error
            // Without room for the queue, and whatever the format is: signing out always works here, and is sent.
            if information == nil, (try? await local.clear()) != nil { try? await change(isKept: true, save) }
        }
        saving.remove(id)
        send()
        do {
            try await withTimeLimit(patience, clock: clock) { try await outcome.value() }
        } catch TokenCacheError.timedOut {
            // It is in the queue, and the process may end before the server fails.
            if information == nil { await keepCredential() }
        }
        guard let failure, let unsaved else { return }
        // A sign-out that the server has, and of which nothing is left here, is complete.
        if unsaved.write != nil || information != nil { throw failure }
        if try await local.record() != nil { throw failure }
    }

    /// What will become of a write.
    func outcome(of id: String) -> Outcome<Void> {
        if let outcome = outcomes[id] { return outcome }
        let outcome = Outcome<Void>()
        outcomes[id] = outcome
        return outcome
    }
}

extension LayeredTokenCache: SharedTokenCaching {
    func beginRefresh(of old: TokenInformation) async -> TokenInformation? {
        await local.beginRefresh(of: old)
    }

    func endRefresh() async {
        await local.endRefresh()
    }

    func isWriteWaiting() async -> Bool {
        (try? await record())?.write != nil
    }

    nonisolated func report(to report: @escaping @Sendable (any Error) -> Void) {
        reports.withLock { $0.append(report) }
    }

    func report(_ error: any Error) {
        for report in reports.withLock({ $0 }) { report(error) }
    }
}
