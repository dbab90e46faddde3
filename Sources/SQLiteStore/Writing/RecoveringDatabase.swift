import Synchronization
import System
import TokenStore

/// The writer's database: makes commits, checks the files after each, and recovers from errors of the disk.
///
/// After an error of the disk it is unknown how much of a commit has reached it, and whether the page cache matches it
/// (a failed fsync is reported only once). So the connection is closed, and before the next write the database is
/// opened again and the whole WAL is checkpointed and synced. Until that succeeds, every write fails.
///
/// If the files were removed, cut or replaced, all writes fail from then on, and the server ends: its next start examines
/// what is there. See `StoreFiles`.
///
/// Used by the writer's thread.
final class RecoveringDatabase {
    private enum Access {
        case open(WriterConnection)
        /// Closed after this error; to be opened again before the next use.
        case closed(StoreError)
        /// Ended by this error, which cannot be repaired while the server runs.
        case ended(StoreError)
    }

    /// A period in which writes fail, all of them or some.
    private struct Failure {
        /// Changes that were not made.
        var count = 0
        /// Bytes that must be written before writes count as working again: those of the largest group that has failed,
        /// up to a limit, or less if the disk stays nearly full.
        var bytes = 0
        /// Whether something has failed since the last check.
        var isRecent = true

        /// The most that is written to prove that the disk works again.
        private static let largestProbe = 4 << 20

        /// Counts a group that is not stored.
        mutating func note(_ changes: [PendingChange]) {
            count += changes.count
            bytes = max(bytes, min(changes.reduce(0) { $0 + $1.change.valueBytes }, Self.largestProbe))
        }
    }

    private var opener: StoreOpener
    private let state: StoreState
    /// Nil after `close`.
    private var files: StoreFiles?
    private var access: Access
    private var lastAttempt: ContinuousClock.Instant?
    /// Nil while writes work.
    private var failure: Failure?
    private var reportedLimit: StoreLimit?
    private var isReadFaultReported = false

    /// Time without a failed read before reads are reported to work again.
    ///
    /// Longer than for writes, because reads cannot be probed: it is unknown which page is damaged.
    private static let calmReadTime = Duration.seconds(10)
    /// Pause between two attempts to open the database again.
    private static let pause = Duration.milliseconds(100)

    /// - Parameters:
    ///   - opened: What `opener` has opened.
    ///   - opener: Opens the database again.
    ///   - state: Gets the counts and the faults.
    ///   - directory: The data folder, locked.
    init(_ opened: StoreOpener.Opened, _ opener: StoreOpener, state: StoreState, directory: DataDirectory) {
        let writer = opened.writer
        self.opener = opener
        self.state = state
        access = .open(writer)
        files = StoreFiles(directory, of: writer.connection)
        lastClockLook = try? Schema.clockLook(of: writer.connection)
        state.metrics.note(tokens: writer.tokenCount, sessions: writer.sessionCount)
        prepare(writer)
        do {
            try settle(writer)
            try opener.compareErasures(writer)
        } catch {
            // For example because the disk is full. Reads work nevertheless; the next write tries again.
            let error = note(.write(StoreFault(error)))
            access = .closed(error)
        }
        // Before the first write the database is opened again and checked; until then handles read what they can.
        if opener.checkRequest.exists { access = .closed(.write(StoreFault("the database was not checked yet"))) }
    }

    private func settle(_ writer: WriterConnection) throws(SQLiteError) {
        // A checkpoint may cut the files, also one that then fails.
        files?.forgetSizes()
        try opener.settle(writer)
        try writer.upgrade()
        // The operator has accepted a WAL that is found damaged at the start. If one is found damaged later, while its
        // index is in use, the index still lists the bad frames, and a checkpoint would copy them into the database.
        opener.options.acceptsDamagedWAL = false
    }

    /// Connects an open database to the store's state.
    private func prepare(_ writer: WriterConnection) {
        writer.connection.measureSyncs(into: state.metrics.syncTime)
        writer.willEnd = { [state] in state.observer?.willEnd(anyOf: $0) }
    }

    /// Nil unless the database is open.
    private var writer: WriterConnection? {
        if case .open(let writer) = access { writer } else { nil }
    }

    /// Bytes of the WAL's content; its file may be longer.
    var walSize: Int { writer?.walSize ?? 0 }

    /// How large the WAL may grow, given the space that is free on its disk now.
    func walRoom() -> WALRoom { WALRoom(ofDatabase: opener.database) }

    /// Whether there are sessions of users.
    var hasSessions: Bool { (writer?.sessionCount ?? 0) > 0 }

    /// When the clock was last checked before this start, in seconds since 1970; see ExpiryClock.
    let lastClockLook: Int64?

    /// Whether a background checkpoint is being synced.
    var isSynchronizing: Bool { writer?.backgroundSync?.isSynchronizing ?? false }

    // MARK: - Writing

    /// Makes changes durable and decides their outcomes; see `WriterConnection.apply`.
    ///
    /// - Returns: Whether any of them was made.
    func write(_ changes: [PendingChange]) -> Bool {
        let began = ContinuousClock.now
        do {
            try perform(writing: changes.compactMap(\.change.writtenID)) { (writer) throws(SQLiteError) in
                let rules = WriteRules(
                    acceptance: state.sealing.acceptance, retention: state.retention,
                    expiryTime: state.clock.expiryTime)
                try writer.apply(changes, rules) { !damagedRows(of: $0).note($0.key) }
            }
            for pending in changes {
                if case .failure(.write) = pending.outcome { continue }
                damagedRows(of: pending.change).noteSound()
            }
            noteLimit()
        } catch {
            failure?.note(changes)
            for pending in changes { pending.outcome = .failure(error) }
        }
        state.metrics.noteGroup(changes, took: ContinuousClock.now - began)
        return changes.contains { if case .success = $0.outcome { true } else { false } }
    }

    private func damagedRows(of change: Change) -> DamagedRows {
        change.writtenID == nil ? state.damagedSessions : state.damagedTokens
    }

    /// Runs a closure with the database, which is opened again first if necessary.
    ///
    /// - Parameters:
    ///   - ids: The unique ids whose tokens it changes.
    ///   - looksBefore: Whether to check the files before as well: a checkpoint gives a truncated database its former
    ///     length, and so hides the damage.
    ///   - body: What to do.
    func perform<Result>(
        writing ids: [[UInt8]] = [], looksBefore: Bool = false, _ body: (WriterConnection) throws(SQLiteError) -> Result
    ) throws(StoreError) -> Result {
        let writer = try usableWriter()
        if looksBefore { try look(at: writer) }
        let observer = ids.isEmpty ? nil : state.observer
        // The order matters: the observer must learn of a write before any handle can read its result, and of its end
        // only when every new read sees the state after it.
        observer?.willWrite(ids)
        state.commitCount.add(1, ordering: .acquiringAndReleasing)
        defer {
            state.commitCount.add(1, ordering: .acquiringAndReleasing)
            observer?.didWrite(ids)
            if !writer.announcedSessions.isEmpty {
                state.observer?.didEnd(anyOf: writer.announcedSessions)
                writer.announcedSessions = []
            }
        }
        let result: Result
        do {
            result = try body(writer)
        } catch {
            // The cause may be a truncated file.
            if !error.isTransient { try look(at: writer) }
            throw failed(error)
        }
        // Between the commit and its acknowledgement: what was written to a file that its path no longer leads to is lost.
        try look(at: writer)
        state.metrics.note(tokens: writer.tokenCount, sessions: writer.sessionCount)
        return result
    }

    /// Closes the database, then unlocks it.
    func close() {
        // Otherwise closing could hide that the WAL was removed in the last second.
        if let writer, (try? look(at: writer, withLocks: true)) != nil {
            // From now on nothing changes, so a copy that is under way needs no mark.
            writer.connection.progress?.marksEnd = false
            // If this fails, the WAL stays, and the next start reads it.
            _ = try? writer.checkpoint(waiting: 1_000)
        }
        access = .ended(.closed)
        files = nil
    }

    // MARK: - Looks

    /// Checks the files, opens the database again if it is closed, and finds out whether writes and reads work again.
    ///
    /// Called once a second. If writes have failed, it writes by itself: a load balancer may keep clients away until the
    /// server is ready.
    func lookAfterFiles() {
        if let writer {
            try? look(at: writer, withLocks: true)
            checkReads()
        }
        do {
            _ = try usableWriter()
            if failure != nil { try tryToWrite() }
        } catch {
            // It was noted.
        }
    }

    /// Writes as many bytes as have failed; if a full disk has no room for them, only halves their number for the next time.
    ///
    /// Ends the failure if nothing has failed since the last check either, so that a disk that fails now and then is
    /// reported once.
    ///
    /// Only this proves that the disk works: other operations that succeed, such as checkpoints and small tokens, may need no
    /// free space.
    private func tryToWrite() throws(StoreError) {
        let (bytes, isRecent) = (failure?.bytes ?? 0, failure?.isRecent ?? false)
        // The bytes go into the WAL and then, with the rest of the WAL, into the database: without room for both, the
        // probe itself would fill the disk. Later writes may be smaller than those that failed, so half as much is
        // tried the next time.
        if state.fault?.cause == .diskFull, bytes > 0, let free = FileSystem(of: opener.database).freeBytes,
            free < 2 * bytes + walSize
        {
            failure?.bytes /= 2
            return
        }
        failure?.isRecent = false
        try perform { (writer) throws(SQLiteError) in try writer.tryToWrite(bytes: bytes) }
        guard !isRecent, let ended = failure.take() else { return }
        state.fault = nil
        opener.options.report(.writesRecovered(failed: ended.count))
    }

    /// Opens the database again if reads fail for a lasting reason, and reports when none has failed for a while.
    private func checkReads() {
        guard let found = state.readFaults else {
            isReadFaultReported = false
            return
        }
        if !isReadFaultReported {
            isReadFaultReported = true
            opener.options.report(.readsFail(found.error))
            // New connections may be able to read. They are made at once, because writes work and must not fail meanwhile.
            if writer != nil { (access, lastAttempt) = (.closed(found.error), nil) }
        } else if ContinuousClock.now - found.last > Self.calmReadTime {
            isReadFaultReported = false
            state.endReadFaults()
            opener.options.report(.readsRecovered(failed: found.count))
        }
    }

    /// Reports when a limit of the store is reached, and when no limit is reached any more.
    private func noteLimit() {
        guard let limit = writer?.reachedLimit else {
            if reportedLimit.take() != nil { opener.options.report(.belowLimit) }
            return
        }
        guard limit != reportedLimit else { return }
        reportedLimit = limit
        opener.options.report(.limitReached(limit))
    }

    // MARK: - Faults

    /// Notes an error of an operation; unless it is transient, the database is opened again before the next one.
    private func failed(_ error: SQLiteError) -> StoreError {
        let fault = note(.write(StoreFault(error, isOfDatabase: true)))
        if !error.isTransient { access = .closed(fault) }
        return fault
    }

    /// Notes that writes fail.
    private func note(_ error: StoreError) -> StoreError {
        if failure == nil {
            failure = Failure()
            opener.options.report(.writesFail(error))
        }
        failure?.isRecent = true
        state.fault = error
        return error
    }

    /// Fails if the files were removed, truncated or replaced, or if that cannot be found out.
    ///
    /// - Parameters:
    ///   - writer: Nil if the database is closed.
    ///   - withLocks: Whether to look at the locks too, which takes more system calls.
    private func look(at writer: WriterConnection?, withLocks: Bool = false) throws(StoreError) {
        var accident: StoreFiles.Accident?
        do {
            accident = try files?.accident(writer?.connection.walIndex)
        } catch {
            throw failed(.system(error.call, of: "database", code: error.code))
        }
        if accident == nil && withLocks && files?.isLocked == false { accident = .lockRemoved }
        guard let accident else { return }
        let isSaved = save(after: accident, from: writer)
        let fault = StoreError.vanished(accident.description(of: opener.database, isSaved: isSaved))
        access = .ended(fault)
        state.fault = fault
        opener.options.report(.filesLost(fault))
        throw fault
    }

    /// Makes the next start check the database, because a part of the lost WAL may be in it; completes the database if
    /// the WAL is still open here.
    ///
    /// - Returns: Whether nothing is lost.
    private func save(after accident: StoreFiles.Accident, from writer: WriterConnection?) -> Bool {
        guard accident != .lockRemoved else { return false }
        // If that is impossible, damage is found only when a damaged page is read, and the next start makes an empty
        // store in the place of a missing database.
        try? opener.checkRequest.make()
        guard accident == .walRemoved, files?.isLocked == true, let writer else { return false }
        guard (try? writer.checkpoint(.restart, waiting: 1_000, insists: true)) == .complete else { return false }
        opener.checkRequest.remove()
        return true
    }

    private func usableWriter() throws(StoreError) -> WriterConnection {
        switch access {
        case .open(let writer): return writer
        case .ended(let fault): throw fault
        case .closed(let fault):
            let now = ContinuousClock.now
            if let lastAttempt, now - lastAttempt < Self.pause { throw fault }
            lastAttempt = now
            return try reopen()
        }
    }

    /// Opens the database again.
    private func reopen() throws(StoreError) -> WriterConnection {
        try look(at: nil, withLocks: true)
        let writer = try opening { () throws(SQLiteOpenError) in try opener.reopen(state).writer }
        // A WAL that has just replaced the store's own must not get into the database.
        try look(at: nil)
        try opening { () throws(SQLiteOpenError) in
            try Schema.opening(opener.database) { () throws(SQLiteError) in try settle(writer) }
            if opener.checkRequest.exists { try check(writer) }
        }
        prepare(writer)
        access = .open(writer)
        // The order matters: after the observer was called, no read of the former connections may begin.
        state.generation.add(1, ordering: .releasing)
        state.observer?.didChangeEverything()
        return writer
    }

    private func opening<Result>(_ body: () throws(SQLiteOpenError) -> Result) throws(StoreError) -> Result {
        do {
            return try body()
        } catch {
            let fault = note(.unusable(error.general))
            if case .closed = access { access = .closed(fault) }
            throw fault
        }
    }

    /// Checks a database whose pages may belong to different commits; if they do, only restoring a backup helps.
    private func check(_ writer: WriterConnection) throws(SQLiteOpenError) {
        do {
            try writer.connection.checkForMixedPages()
        } catch {
            guard error.isNotADatabase else { throw .database(path: opener.database, error) }
            let found = SQLiteOpenError.notADatabase(path: opener.database, error)
            access = .ended(.unusable(found.general))
            throw found
        }
        opener.checkRequest.remove()
    }
}
