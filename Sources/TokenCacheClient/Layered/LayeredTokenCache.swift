import Foundation

/// A local cache with a remote one behind it: works without a network, and starts logged in on the next device.
///
/// - **Fetching** asks the server. If this device knows whether there is a token, it waits only a moment for the answer, and
///   otherwise until it comes. The answer is kept here. Unknown is never taken for none: if the server has lost a token without the
///   mark that a sign-out leaves there, the device keeps it. Only with a session of token-cache's, which an empty store does not
///   know, is that a removal.
/// - **Storing and clearing** happen here and are queued in one step, then sent. Without a network the calls return, and what they
///   wrote is sent later: by retries, by the next call, or by `synchronize()`, also after a restart.
/// - **Between devices, the server's versions decide, never clocks.** Each write names the version of the token that this device
///   last saw on the server. If another device has written since, its write stands, with two exceptions: a sign-out does not end
///   a login that came after it, and it ends the logins that its device knew, however often other devices refreshed their tokens.
///   A write that waited on a device which had never seen the server's version replaces no token there.
/// - **A sign-out stays in the queue until the server has it**, with the credential to send it. If its user never comes back, the
///   next cache for the same place on this device sends it: a place is for the users of one server.
///
/// Two processes, such as an app and its extension, may share the local cache. Usable from any task.
public actor LayeredTokenCache: TokenCaching {
    let local: LocalTokenCache
    let remote: any TokenCaching
    let clock: any Clock<Duration>
    let patience: Duration

    /// The error of the last request to the server, or of reading here what to send; nil if it succeeded.
    ///
    /// For example `TokenCacheError.unauthorized`: the session was revoked, and the app should get another one. A write that was
    /// refused for such a reason is tried again when the app calls a method, or starts again.
    public internal(set) var remoteError: (any Error)?

    /// Runs the changes of the record one after the other.
    private let turns = Turns()
    /// A record that could not be saved, for example on a full disk, and what is saved in its place.
    private var unsaved: Unsaved?
    /// The outcomes of writes that somebody waits for, by the writes' ids.
    var outcomes: [String: Outcome<Void>] = [:]
    /// The last fetch from the server that is under way, its number, and what was known before it.
    private var asking: (number: Int, known: LocalRecord?, answer: Outcome<TokenInformation?>)?
    private var asks = 0
    /// The login or sign-out that has just been made and was not sent yet, and whether it replaces whatever is on the server.
    var untried: (id: String, isUnconditional: Bool)?
    /// The ids of writes that are being put into the queue.
    var saving: Set<String> = []
    var isSending = false
    /// Whether to look into the queue again after sending.
    var sendsAgain = false
    var failures = 0
    var retry: Task<Void, Never>?
    /// Whether to look for waiting sign-outs of other users, which happens once.
    var looksForOthers = true
    /// Whether this cache only sends the sign-out of a user whose own cache is gone.
    var isOthers = false
    private nonisolated let reports = Locked<[@Sendable (Report) -> Void]>([])
    nonisolated let writers = Locked<[@Sendable () async -> Void]>([])

    private struct Unsaved {
        let record: LocalRecord?
        var saved: LocalRecord?

        /// The record that counts.
        ///
        /// It is the disk's if another process has queued a write since, or has saved anything while no write waits in this one.
        func record(over disk: LocalRecord?) -> LocalRecord? {
            let isSame = disk.map { $0.isSame(as: saved) } ?? (saved == nil)
            let waits = record?.write != nil && disk?.write.map { $0.id == saved?.write?.id } ?? true
            return isSame || waits ? record : disk
        }
    }

    /// What sessions are told.
    enum Report: Sendable {
        /// Nothing is sent until something changes, or the app's own code has failed.
        case failed(any Error)
        /// An answer of the server has changed what this device knows.
        case learned
    }

    /// A cache in two layers.
    ///
    /// - Parameters:
    ///   - local: The user's token on this device, with what waits for the network.
    ///   - remote: The same user's token on the server.
    ///   - patience: How long to wait for the server if this device has an answer; less than a session waits for its cache. With
    ///     `.zero`, a fetch answers from the device at once, and what the server answers is kept for the next one.
    ///   - clock: Measures waits.
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

    /// What this device knows; nil if that is nothing.
    func record() async throws(TokenCacheError) -> LocalRecord? {
        while true {
            let hadUnsaved = unsaved != nil
            do {
                let record = try await local.record()
                if let unsaved { return unsaved.record(over: record) }
                // Otherwise it was saved meanwhile.
                if !hadUnsaved { return record }
            } catch {
                if let unsaved { return unsaved.record }
                // The server's answer or the next token replaces it.
                guard case .unreadable = error else { throw error }
                return nil
            }
        }
    }

    /// Changes the record, on the disk if possible.
    ///
    /// - Parameters:
    ///   - isKept: Whether the change counts here if it cannot be saved.
    ///   - change: May be called twice.
    /// - Throws: Why it could not be saved.
    func change(isKept: Bool, _ change: @escaping @Sendable (inout LocalRecord?) -> Void) async throws {
        try await turns.run { try await self.changeNow(isKept, change) }
    }

    private func changeNow(_ isKept: Bool, _ change: @Sendable (inout LocalRecord?) -> Void) async throws {
        do {
            try await local.update { [unsaved] record in
                if let unsaved { record = unsaved.record(over: record) }
                change(&record)
            }
            unsaved = nil
        } catch {
            if isKept || unsaved != nil {
                var (saved, isReadable) = (LocalRecord?.none, true)
                do {
                    saved = try await local.record()
                } catch {
                    if case .unreadable = error {} else { isReadable = false }
                }
                var record = unsaved.map { $0.record(over: saved) } ?? saved
                change(&record)
                // What cannot be read now may be a sign-out that the server does not have, over which only a write counts.
                if isReadable || unsaved != nil || record?.write != nil {
                    unsaved = Unsaved(record: record, saved: saved)
                }
            }
            throw error
        }
    }

    // MARK: - Fetching

    /// The token: the server's if it answers in time, otherwise what this device knows.
    ///
    /// - Throws: What the server's cache throws if this device does not know whether there is a token; `TokenCacheError.locked` and
    ///   `.storage` if the local record cannot be read now: it may be a sign-out that the server does not have.
    public func fetch() async throws -> TokenInformation? {
        lookForOthers()
        var known: LocalRecord?
        do {
            known = try await record()
        } catch {
            guard case .laterFormat = error else { throw error }
        }
        if let write = known?.write {
            // What this device has written counts, also before the server has it, unless another device was faster.
            await wait(for: write.id)
            known = try await record()
            if let known { return known.information }
        }
        let answer = ask(known)
        guard let known else { return try await answer.value() }
        do {
            return try await withTimeLimit(patience, clock: clock) { try await answer.value() }
        } catch {
            // The app's own closure may throw a `CancellationError` as well.
            if Task.isCancelled { throw error }
            // A late answer is still saved, for the next fetch.
            return ((try? await record()) ?? known)?.information
        }
    }

    /// The token on this device, while the server is asked: a report tells if it has another one, or none.
    func fetchKnown() async -> TokenInformation? {
        guard let known = try? await record(), let information = known.information else { return nil }
        lookForOthers()
        if known.write == nil { _ = ask(known) } else { send() }
        return information
    }

    /// Fetches from the server, once for all callers at the same time.
    private func ask(_ known: LocalRecord?) -> Outcome<TokenInformation?> {
        if let asking, asking.known == nil ? known == nil : asking.known?.isSame(as: known) == true {
            return asking.answer
        }
        asks += 1
        let answer = Outcome { [asks] in try await self.asked(asks, known) }
        asking = (asks, known, answer)
        return answer
    }

    private func asked(_ number: Int, _ known: LocalRecord?) async throws -> TokenInformation? {
        defer { if asking?.number == number { asking = nil } }
        let answer: VersionedToken
        do {
            answer = try await remote.fetchWithBase()
            remoteError = nil
            if case .unreadable(let error) = answer.content { throw error }
        } catch {
            failed(by: error)
            throw error
        }
        // The server may have failed without saying so, so the token is kept.
        if answer.isUnexplained, let information = known?.information { return information }
        return await keep(answer, after: known)
    }

    /// Keeps what the server has answered, in memory if it cannot be saved.
    ///
    /// - Returns: The token that counts now.
    @discardableResult
    func keep(_ answer: VersionedToken, after known: LocalRecord?) async -> TokenInformation? {
        let new = LocalRecord(answer.information, base: answer.base)
        do {
            try await change(isKept: true) { record in
                // The answer is older than what was written meanwhile, here or by another process.
                let isAsBefore = record.map { $0.isSame(as: known) } ?? (known == nil)
                // The server does not have yet what waits. The same version stays as it is: a token without a date would get a new one.
                if isAsBefore, record?.write == nil, record?.base != new.base { record = new }
            }
        } catch {
            // A token that is gone goes from the device also on a full disk, as removing needs no room.
            if new.information == nil { try? await turns.run { try await self.removeSaved() } }
        }
        let found = ((try? await record()) ?? new).information
        if found != known?.information { report(.learned) }
        return found
    }

    /// Removes what is saved in the place of an unsaved record without a token.
    private func removeSaved() async throws {
        guard let unsaved, unsaved.record?.information == nil, let saved = unsaved.saved, saved.write == nil else {
            return
        }
        let isRemoved = try await local.update { record in
            guard record?.isSame(as: saved) == true else { return false }
            record = nil
            return true
        }
        if isRemoved { self.unsaved?.saved = nil }
    }

    // MARK: - Writing

    /// Stores the token on this device, queues it, and waits a moment until it is sent.
    ///
    /// - Throws: `TokenCacheError.conflict` if another device has stored or cleared a token meanwhile, which this device then has as
    ///   well. What the local cache throws; the token was sent nevertheless if the server could be reached.
    public func store(_ information: TokenInformation) async throws {
        try await write(information)
    }

    /// Clears the token on this device, queues the sign-out, and waits a moment until it is sent.
    ///
    /// - Throws: What the local cache throws, if the sign-out has not reached the server and cannot be queued either: it is lost
    ///   if the process ends, or another process writes.
    public func clear() async throws {
        do {
            try await write(nil)
        } catch TokenCacheError.conflict {
            // The user has logged in again since, on another device.
        }
    }

    /// Stores a token that continues a login, unless that has ended or was replaced.
    func storeContinued(_ information: TokenInformation) async throws {
        try await write(information, isContinued: true)
    }

    private func write(_ information: TokenInformation?, isContinued: Bool = false) async throws {
        // If the task is cancelled, it stops waiting, but the write is completed.
        try await Outcome { try await self.begin(information, isContinued) }.value()
    }

    private func begin(_ information: TokenInformation?, _ isContinued: Bool) async throws {
        lookForOthers()
        let id = UUID().uuidString
        // A sign-out replaces whatever is on the server, unless this device has signed out before.
        let known = try? await record()
        let hasSignedOut = known.map { $0.information == nil && $0.write?.logins.isEmpty != false } ?? false
        if !isContinued { untried = (id, information == nil && !hasSignedOut) }
        let outcome = outcome(of: id)
        let credential = information == nil ? (remote as? RemoteTokenCache)?.credential : nil
        let refusal = Locked<TokenCacheError?>(nil)
        let save: @Sendable (inout LocalRecord?) -> Void = { record in
            let isRefused = refusal.withLock { refusal in
                refusal = isContinued ? information.flatMap { record?.refusal(of: $0) } : nil
                return refusal != nil
            }
            if isRefused { return }
            let write = LocalRecord.Write(
                id: id, credential: credential, after: record, continuedBy: isContinued ? information : nil)
            record = LocalRecord(information, base: record?.base ?? .anything, write: write)
        }
        saving.insert(id)
        var failure: (any Error)?
        do {
            try await change(isKept: true, save)
        } catch {
            failure = error
            // Signing out works here also on a full disk and with a later format, and is sent.
            if information == nil, (try? await local.clear()) != nil { try? await change(isKept: true, save) }
        }
        saving.remove(id)
        if let refusal = refusal.withLock({ $0 }) {
            outcomes[id] = nil
            throw refusal
        }
        send()
        do {
            try await withTimeLimit(patience, clock: clock) { try await outcome.value() }
        } catch TokenCacheError.timedOut {
            // The write is in the queue, and the process may end before the request does.
            if information == nil { await keepCredential() }
        }
        guard let failure, let unsaved else { return }
        // A sign-out is complete if the server has it and nothing is left here.
        if unsaved.record?.write != nil || information != nil { throw failure }
        if try await local.record() != nil { throw failure }
    }

    /// The outcome of a write, to be waited for.
    func outcome(of id: String) -> Outcome<Void> {
        if let outcome = outcomes[id] { return outcome }
        let outcome = Outcome<Void>()
        outcomes[id] = outcome
        return outcome
    }

    // MARK: - For sessions

    /// Whether a write has not reached the server yet.
    func isWriteWaiting() async -> Bool {
        (try? await record())?.write != nil
    }

    /// Sets a function that is called with each report.
    nonisolated func report(to report: @escaping @Sendable (Report) -> Void) {
        reports.withLock { $0.append(report) }
    }

    /// Sets a function that waits until what has been handed out as a new token is in the queue.
    nonisolated func waitBeforeSending(_ finishWrites: @escaping @Sendable () async -> Void) {
        writers.withLock { $0.append(finishWrites) }
    }

    func report(_ report: Report) {
        for receive in reports.withLock({ $0 }) { receive(report) }
    }

    /// What the server has in place of a token that has expired, once it has answered, however long that takes.
    ///
    /// - Throws: Why it is unknown what the server has, if that may be known later.
    func fetchSettled(insteadOf expired: TokenInformation, at time: Date) async throws -> TokenInformation? {
        try await synchronize()
        _ = try? await ask(try await record()).value()
        try Task.checkCancellation()
        if let obstacle = await obstacle(to: expired, at: time) { throw obstacle }
        return try await record()?.information
    }

    /// Why it is unknown what the server has in place of a token, if that may be known later.
    func obstacle(to information: TokenInformation, at time: Date) async -> (any Error)? {
        if let remoteError {
            // One of the app's own code, for whose caller nothing was cancelled.
            if remoteError is CancellationError { return TokenCacheError.timedOut }
            return (remoteError as? TokenCacheError)?.isPermanent == true ? nil : remoteError
        }
        let isSending = if isSending { await isWriteWaiting() } else { false }
        if asking != nil || isSending { return TokenCacheError.timedOut }
        return (remote as? RemoteTokenCache)?.obstacle(to: information, at: time)
    }

    /// Notes the error of a request.
    func failed(by error: any Error) {
        // One of the app's own code, such as that its account has ended, may pass or not: of several in a row, the first is told.
        let isFirst = remoteError.map { $0 is TokenCacheError } ?? true
        remoteError = error
        if (error as? TokenCacheError)?.isPermanent ?? isFirst { report(.failed(error)) }
    }
}
