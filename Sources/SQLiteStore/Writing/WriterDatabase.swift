internal import Metrics
internal import Synchronization
internal import System
internal import TokenStore

/// The writer's database and its recovery from faults.
///
/// After an error of the disk nobody knows what of a commit has reached it, nor whether the system's page cache still tells
/// the truth (a failed fsync is reported once). So the connection is given up, and before the next write the database is
/// opened again and all of the log is moved into it and synced. Until that works every write fails.
///
/// Used by the writer's thread.
final class WriterDatabase {
    private let opener: StoreOpener
    private let state: StoreState
    private let directory: DataDirectory
    /// Nil after the end, and while the database cannot be locked again.
    private var lock: DatabaseLock?
    private var files: StoreFiles
    /// Nil after a fault, until the database has been opened again.
    private var committer: Committer?
    /// The committer whose WAL was removed, until the content of that WAL is in the database: its open file is the only copy
    /// that nobody can remove.
    private var stranded: Committer?
    private var fault: StoreError
    private var lastAttempt: ContinuousClock.Instant?
    /// Since writes began to fail; nil while they do not.
    private var failure: Failure?
    private var reportedLimit: StoreLimit?
    private var isReadFaultTold = false
    /// Pages of the database may not fit together, as a part of the WAL was lost that had been moved in part.
    private var mayBeMixed = false
    /// Pages do not fit together, or some are gone: only a backup helps, for which the server has to be stopped.
    private var isUnsound = false

    /// A time in which writes fail, all of them or some.
    private struct Failure {
        var count = 0
        var last: ContinuousClock.Instant
        /// Bytes of the largest group that has failed: writing works when as much can be written.
        var bytes = 0
        /// Something else than a group has failed, a checkpoint say: then a group that is stored proves nothing.
        var needsProbe = false
        /// As much was written and synced later.
        var isOver = false

        /// Counts a group that is not stored.
        mutating func note(_ rows: [Row]) {
            count += rows.count
            bytes = max(bytes, min(rows.reduce(0) { $0 + $1.value.count }, Self.largestProbe))
        }

        /// The most that is asked of a disk before it counts as mended.
        private static let largestProbe = 4 << 20
    }

    /// What the success of an operation proves about a disk on which writes have failed.
    enum Proof {
        /// Nothing: a checkpoint, a look, or the removal of rows needs no more room than there is.
        case none
        /// A group of tokens as large as those that failed can be stored, if that many bytes were synced.
        case group
        /// Writing works again: the operation was a probe, made to find that out.
        case probe
    }

    /// After the last failure, until it is said to be over: a disk that fails now and then is told of once.
    private static let calmTime = Duration.seconds(1)
    /// Time without a failed read before reads are said to work again.
    ///
    /// Longer than for writes, as reads cannot be probed: which page is damaged is not known.
    private static let calmReadTime = Duration.seconds(10)
    /// Between two attempts to open the database again.
    private static let pause = Duration.milliseconds(100)

    /// - Parameter mayBeMixed: As `StoreOpener.Opened` says.
    init(
        _ committer: Committer, mayBeMixed: Bool = false, opener: StoreOpener, state: StoreState,
        directory: DataDirectory, lock: consuming DatabaseLock
    ) {
        self.opener = opener
        self.state = state
        self.directory = directory
        self.lock = consume lock
        self.committer = committer
        files = StoreFiles(directory: opener.directory, database: opener.database)
        files.adopt(log: committer.connection.log?.identity)
        state.metrics.tokens.set(UInt64(committer.tokenCount))
        committer.connection.measureSyncs(into: state.metrics.syncTime)
        lastClockLook = committer.lastClockLook
        fault = .vanished(path: opener.database)
        do throws(SQLiteError) {
            try opener.settle(committer)
        } catch {
            // On a full disk, say. What is there can be read all the same; for writes it is tried again.
            _ = failed(.write(StoreFault(error)), losesConnection: true)
        }
        if mayBeMixed {
            // Before the first write the database is opened again and checked, while what can be read is.
            self.mayBeMixed = true
            self.committer = nil
        }
    }

    /// Bytes of what is in the log, whose file may be longer.
    var logSize: Int { committer?.logSize ?? 0 }

    /// When the clock was last looked at, as the store had it when it was opened first; see ExpiryClock.
    let lastClockLook: Int64?

    /// Whether what was moved ahead of a checkpoint is being synced in the background.
    var isSynchronizing: Bool { committer?.mover?.isSynchronizing ?? false }

    /// Makes rows durable; see `Committer.commit`.
    func commit(_ rows: [Row]) -> [Result<Void, StoreError>] {
        let began = ContinuousClock.now
        let outcomes: [Result<Void, StoreError>]
        do throws(StoreError) {
            outcomes = try perform(writing: rows.map(\.id), proof: .group) {
                (committer) throws(SQLiteError) in
                // Not before: opening the database again may have brought another store's keys.
                let acceptance = state.sealing.acceptance
                return try committer.commit(rows) { acceptance.accepts($0) }
            }
            noteLimit()
        } catch {
            failure?.note(rows)
            outcomes = rows.map { _ in .failure(error) }
        }
        state.metrics.noteGroup(outcomes, took: ContinuousClock.now - began)
        return outcomes
    }

    /// Does something with the database, opening it again first if need be.
    ///
    /// - Parameters:
    ///   - ids: The unique ids whose tokens it changes.
    ///   - proof: What it proves, when it has written and synced as much as has failed.
    ///   - body: What to do.
    func perform<Result>(
        writing ids: [[UInt8]] = [], proof: Proof = .none, _ body: (Committer) throws(SQLiteError) -> Result
    ) throws(StoreError) -> Result {
        let committer = try usableCommitter()
        let observer = ids.isEmpty ? nil : state.observer
        // In this order: whoever keeps what a session reads must learn of the write before a session can see it, and of its end
        // after no session goes on reading from before it.
        observer?.willWrite(ids)
        state.commitCount.add(1, ordering: .acquiringAndReleasing)
        defer {
            state.commitCount.add(1, ordering: .acquiringAndReleasing)
            observer?.didWrite(ids)
        }
        let syncedBefore = failure == nil ? 0 : committer.connection.syncedBytes
        let result: Result
        do throws(SQLiteError) {
            result = try body(committer)
        } catch {
            let error = failed(.write(StoreFault(error)), losesConnection: !error.isOfMoment)
            if proof == .none { failure?.needsProbe = true }
            throw error
        }
        // Whatever was written to files that nobody will find again is lost.
        if let loss = lookForLoss(committer) { throw loss }
        if let failure, proof == .probe || proof == .group && !failure.needsProbe {
            let synced = committer.connection.syncedBytes - syncedBefore
            if synced > failure.bytes { self.failure?.isOver = true }
        }
        state.metrics.tokens.set(UInt64(committer.tokenCount))
        return result
    }

    /// Looks whether the files are where they were, tries to open the database again if it is not open, and tells when
    /// a failure is over.
    ///
    /// That is found out by writing, also when no client does: who asks whether the server is ready may keep them away
    /// until it is.
    func lookAfterFiles() {
        if let failure, failure.isOver, ContinuousClock.now - failure.last > Self.calmTime {
            opener.report(.writesRecovered(failed: failure.count))
            self.failure = nil
        }
        if let committer, lookForLoss(committer) == nil { lookForFailedReads() }
        if committer == nil || !isLocked {
            // Without its lock there may be a second server: nothing more is written before the folder is locked again.
            committer = nil
            openAgain()
        }
        if let failure, !failure.isOver, committer != nil { tryToWrite() }
        if failure == nil && committer != nil { state.fault = nil }
    }

    private func openAgain() {
        do throws(StoreError) {
            _ = try usableCommitter()
        } catch {
            // Otherwise it has been told of.
            let isTold = state.fault != nil && state.fault != .logLost(path: files.log)
            if !isTold { _ = failed(error, losesConnection: true) }
        }
    }

    /// Writes as much as has failed, to see whether it works again.
    private func tryToWrite() {
        let bytes = failure?.bytes ?? 0
        _ = try? perform(proof: .probe) { (committer) throws(SQLiteError) in
            try committer.tryToWrite(bytes: bytes)
        }
    }

    /// Closes the database, and then gives the folder free.
    func close() {
        // With its file closed, the removed WAL would be lost.
        if let stranded { loseLog(of: stranded, wasRemoved: true) }
        if let committer {
            // If this fails, the stored counts stay ahead of the seals that were made, which does no harm.
            try? committer.storeSeals()
            // If it fails the log stays, and the next start reads it.
            _ = try? committer.checkpoint(waiting: 1_000)
        }
        (committer, stranded) = (nil, nil)
        lock = nil
    }

    // MARK: - Faults

    private func failed(_ error: StoreError, losesConnection: Bool) -> StoreError {
        if losesConnection {
            // The error may come from a WAL that was removed or cut, which only this connection can put back.
            if let committer, let loss = lookForLoss(committer) { return loss }
            committer = nil
            fault = error
        }
        if failure == nil { opener.report(.writesFail(error)) }
        var failure = failure ?? Failure(last: .now)
        failure.last = .now
        failure.isOver = false
        self.failure = failure
        state.fault = error
        return error
    }

    /// Looks whether the files are in their place and whole; if not, the connection is given up.
    private func lookForLoss(_ committer: Committer) -> StoreError? {
        let index = committer.connection.logIndex
        switch files.look(logSize: index?.size ?? 0, databaseSize: index?.databaseSize) {
        case .inPlace: return nil
        case .vanished: loseFiles(.vanished(path: opener.database), .vanished(path: opener.database))
        case .logRemoved: loseLog(of: committer, wasRemoved: true)
        case .logCut: loseLog(of: committer, wasRemoved: false)
        case .databaseCut:
            // Moving the WAL into it would only enlarge the damage. Reads go on as far as they can.
            isUnsound = true
            self.committer = nil
            let error = SQLiteError.damaged("it was cut while the server ran")
            fault = .unusable(SQLiteOpenError.notADatabase(path: opener.database, error).shared)
            state.fault = fault
            opener.report(.writesFail(fault))
        }
        return fault
    }

    private func loseFiles(_ fault: StoreError, _ event: StoreEvent) {
        committer = nil
        self.fault = fault
        state.fault = fault
        let wasInPlace = leavePlace()
        if wasInPlace { opener.report(event) }
    }

    /// Has sessions stop using the files, and tells the observer.
    ///
    /// - Returns: Whether they used them until now.
    private func leavePlace() -> Bool {
        // In this order: a read that begins after the observer was told fails.
        defer { state.observer?.didChangeEverything() }
        return state.isInPlace.exchange(false, ordering: .acquiringAndReleasing)
    }

    /// Saves what can be saved of a log that was removed or cut, so that the database can be opened anew.
    private func loseLog(of committer: Committer, wasRemoved: Bool) {
        self.committer = nil
        fault = .logLost(path: files.log)
        state.fault = fault
        let wasInPlace = leavePlace()
        let commits = committer.connection.loggedCommits
        do throws(SQLiteError) {
            let loss = try committer.connection.mendLog(files.log, wasRemoved: wasRemoved)
            // Kept until its content is in the database, as the WAL that was put back may be removed once more.
            stranded = loss == .none ? committer : nil
            mayBeMixed = mayBeMixed || loss == .pages
            if loss != .none { opener.report(.logCut(path: files.log, commits: commits)) }
            // Reads failed because of the WAL, and work again when the database is open again.
            state.endReadFaults()
        } catch {
            // On a full disk, say. What is in the log is not given up as long as it is open here.
            stranded = committer
            fault = .write(StoreFault(error))
            state.fault = fault
            if wasInPlace { opener.report(.logRemoved(path: files.log, error)) }
        }
    }

    /// Opens the database anew when reads fail that should not, and tells when none has for a while.
    private func lookForFailedReads() {
        guard let found = state.readFaults else {
            isReadFaultTold = false
            return
        }
        if !isReadFaultTold {
            isReadFaultTold = true
            opener.report(.readsFail(found.error))
            // New connections may be able to read.
            fault = found.error
            committer = nil
        } else if ContinuousClock.now - found.last > Self.calmReadTime {
            isReadFaultTold = false
            state.endReadFaults()
            opener.report(.readsRecovered(failed: found.count))
        }
    }

    private func usableCommitter() throws(StoreError) -> Committer {
        if let committer { return committer }
        let now = ContinuousClock.now
        if isUnsound { throw fault }
        if let lastAttempt, now - lastAttempt < Self.pause { throw fault }
        lastAttempt = now
        if let stranded {
            loseLog(of: stranded, wasRemoved: true)
            if case .write = fault { throw fault }
        }
        do throws(SQLiteOpenError) {
            if !isLocked { try lockAgain() }
            if stranded == nil { try forgetLostLog() }
            let opened = try opener.reopen(state.retention)
            if let stranded = stranded.take() {
                stranded.connection.emptyLog()
                opener.report(.logPutBack(path: files.log))
            }
            if mayBeMixed || opened.mayBeMixed {
                (mayBeMixed, isUnsound) = (true, true)
                let connection = opened.committer.connection
                try Schema.opening(opener.database) { () throws(SQLiteError) in try BackupFile.check(connection) }
                (mayBeMixed, isUnsound) = (false, false)
            }
            // The same keys stay the same, or rows that were sealed with them meanwhile would be refused.
            if !opened.keys.index.hasBytes(of: state.sealing.keys.index) { state.sealing.replace(opened.keys) }
            opened.committer.connection.measureSyncs(into: state.metrics.syncTime)
            committer = opened.committer
            files.adopt(log: opened.committer.connection.log?.identity)
        } catch {
            if case .missing = error { throw fault }
            fault = .unusable(error.shared)
            if isUnsound && state.fault == nil {
                state.fault = fault
                opener.report(.writesFail(fault))
            }
            throw fault
        }
        // In this order: a read of the former database has begun before the observer is told.
        state.generation.add(1, ordering: .releasing)
        state.observer?.didChangeEverything()
        if !state.isInPlace.exchange(true, ordering: .releasing) { opener.report(.returned(path: opener.database)) }
        return try usableCommitter()
    }

    /// Whether no other process can have locked what the paths lead to.
    private var isLocked: Bool { directory.isInPlace && lock?.isInPlace == true }

    private func lockAgain() throws(SQLiteOpenError) {
        // The former lock is of no use to anybody.
        lock = nil
        do throws(DataDirectoryError) {
            try directory.lockAgain()
        } catch {
            throw .directory(error)
        }
        lock = try DatabaseLock(in: directory.path, expecting: opener.database)
    }

    /// Goes on without a WAL that was removed or cut while no connection of the writer had it open.
    private func forgetLostLog() throws(SQLiteOpenError) {
        guard FileStatus.exists(opener.database) else { return }
        try Schema.opening(opener.database) { () throws(SQLiteError) in
            let connection = try SQLiteConnection(path: opener.database, mode: .readWrite)
            guard let loss = try connection.forgetLostLog(files.log) else { return }
            mayBeMixed = mayBeMixed || loss == .pages
            opener.report(.logCut(path: files.log, commits: loss == .none ? 0 : nil))
        }
    }

    private func noteLimit() {
        guard let limit = committer?.reachedLimit else {
            if reportedLimit.take() != nil { opener.report(.belowLimit) }
            return
        }
        guard limit != reportedLimit else { return }
        reportedLimit = limit
        opener.report(.limitReached(limit))
    }
}
