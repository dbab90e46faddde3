internal import Cryptography
internal import Metrics
internal import Synchronization
internal import System
internal import TokenStore

/// The writer's database and its recovery from faults.
///
/// After an error of the disk it is unknown how much of a commit has reached it, and whether the page cache matches it
/// (a failed fsync is reported only once). So the connection is closed, and before the next write the database is
/// opened again and the whole WAL is checkpointed and synced. Until that succeeds, every write fails.
///
/// Used by the writer's thread.
final class RecoveringDatabase {
    private let opener: StoreOpener
    private let state: StoreState
    private let directory: DataDirectory
    /// Nil after `close`, and while the database cannot be locked again.
    private var lock: DatabaseLock?
    private var files: StoreFiles
    private var access: DatabaseAccess
    /// Why the database cannot be used; read only while it is closed or unsound.
    private var fault: StoreError
    private var lastAttempt: ContinuousClock.Instant?
    /// The present period in which writes fail; nil while they work.
    private var failure: WriteFailure?
    private var reportedLimit: StoreLimit?
    private var isReadFaultReported = false

    /// Time without a failure before writes are reported to work again, so that a disk that fails now and then is
    /// reported once.
    private static let calmTime = Duration.seconds(1)
    /// Time without a failed read before reads are reported to work again.
    ///
    /// Longer than for writes, because reads cannot be probed: it is unknown which page is damaged.
    private static let calmReadTime = Duration.seconds(10)
    /// Pause between two attempts to open the database again.
    private static let pause = Duration.milliseconds(100)

    /// - Parameter mayBeMixed: As `StoreOpener.Opened` says.
    init(
        _ writer: WriterConnection, mayBeMixed: Bool = false, opener: StoreOpener, state: StoreState,
        directory: DataDirectory, lock: consuming DatabaseLock
    ) {
        self.opener = opener
        self.state = state
        self.directory = directory
        self.lock = consume lock
        access = .open(writer)
        files = StoreFiles(directory: opener.directory, database: opener.database)
        files.adopt(wal: writer.connection.wal?.identity)
        state.metrics.note(tokens: writer.tokenCount, sessions: writer.sessionCount)
        lastClockLook = writer.lastClockLook
        fault = .vanished(path: opener.database)
        prepare(writer)
        do throws(SQLiteError) {
            try opener.settle(writer)
        } catch {
            // For example because the disk is full. Reads work nevertheless; the next write tries again.
            _ = failed(.write(StoreFault(error)), losesConnection: true)
        }
        if mayBeMixed {
            // The database is opened again and checked before the first write; until then handles read what they can.
            access = .closed(DatabaseAccess.Rescue(mayBeMixed: true))
        }
    }

    /// Connects an open database to the store's state.
    private func prepare(_ writer: WriterConnection) {
        writer.connection.measureSyncs(into: state.metrics.syncTime)
        writer.willEnd = { [state] in state.observer?.willEnd($0) }
    }

    /// Bytes of the WAL's content; its file may be longer.
    var walSize: Int { access.writer?.walSize ?? 0 }

    /// How large the WAL may grow, given the space that is free on its disk now.
    func walRoom() -> WALRoom { WALRoom(ofDatabase: opener.database) }

    /// Whether there are sessions of users.
    var hasSessions: Bool { (access.writer?.sessionCount ?? 0) > 0 }

    /// When the clock was last checked before this start, in seconds since 1970; see ExpiryClock.
    let lastClockLook: Int64?

    /// Whether a background checkpoint is being synced.
    var isSynchronizing: Bool { access.writer?.checkpointer?.isSynchronizing ?? false }

    /// Makes changes durable; see `WriterConnection.commit`.
    func commit(_ changes: [Change]) -> [Result<ChangeOutcome, StoreError>] {
        let began = ContinuousClock.now
        let outcomes: [Result<ChangeOutcome, StoreError>]
        do throws(StoreError) {
            outcomes = try perform(writing: changes.compactMap(\.writtenID), proof: .group) {
                (writer) throws(SQLiteError) in
                // Not earlier, as opening the database again may have brought another store's keys.
                try writer.commit(changes, WriteRules(state.sealing, state.retention))
            }
            noteLimit()
        } catch {
            failure?.note(changes)
            outcomes = changes.map { _ in .failure(error) }
        }
        state.metrics.noteGroup(outcomes, took: ContinuousClock.now - began)
        return outcomes
    }

    /// Runs a closure with the database, which is opened again first if necessary.
    ///
    /// - Parameters:
    ///   - ids: The unique ids whose tokens it changes.
    ///   - proof: What its success proves, if it has written and synced as many bytes as have failed.
    ///   - body: What to do.
    func perform<Result>(
        writing ids: [[UInt8]] = [], proof: Proof = .none, _ body: (WriterConnection) throws(SQLiteError) -> Result
    ) throws(StoreError) -> Result {
        let writer = try usableWriter()
        let observer = ids.isEmpty ? nil : state.observer
        // The order matters: the observer must learn of a write before any handle can read its result, and of its end
        // only when every new read sees the state after it.
        observer?.willWrite(ids)
        writer.forgetAnnouncedSessions()
        state.commitCount.add(1, ordering: .acquiringAndReleasing)
        defer {
            state.commitCount.add(1, ordering: .acquiringAndReleasing)
            observer?.didWrite(ids)
            if !writer.announcedSessions.isEmpty { state.observer?.didEnd(writer.announcedSessions) }
        }
        let syncedBefore = failure == nil ? 0 : writer.connection.syncedBytes
        let result: Result
        do throws(SQLiteError) {
            result = try body(writer)
        } catch {
            let error = failed(.write(StoreFault(error)), losesConnection: !error.isTransient)
            if proof == .none { failure?.needsProbe = true }
            throw error
        }
        // What was written to a file is lost if the file's path no longer leads to it.
        if let loss = findLoss(writer) { throw loss }
        if let failure, proof == .probe || proof == .group && !failure.needsProbe {
            let synced = writer.connection.syncedBytes - syncedBefore
            if synced > failure.bytes { self.failure?.isOver = true }
        }
        state.metrics.note(tokens: writer.tokenCount, sessions: writer.sessionCount)
        return result
    }

    /// Checks the files' places, opens the database again if it is closed, and reports when a failure is over.
    ///
    /// To find out whether writes work again, it writes by itself: a load balancer may keep clients away until the server
    /// is ready.
    func lookAfterFiles() {
        if let failure, failure.isOver, ContinuousClock.now - failure.last > Self.calmTime {
            opener.report(.writesRecovered(failed: failure.count))
            self.failure = nil
        }
        if let writer = access.writer, findLoss(writer) == nil { checkReads() }
        if access.writer == nil || !isLocked {
            // Without the lock a second server may run: nothing is written before the folder is locked again.
            access.giveUp()
            openAgain()
        }
        if let failure, !failure.isOver, access.writer != nil { tryToWrite() }
        if failure == nil && access.writer != nil { state.fault = nil }
    }

    private func openAgain() {
        do throws(StoreError) {
            _ = try usableWriter()
        } catch {
            // A lost WAL was reported as such, but not that writes fail.
            let isReported = state.fault != nil && state.fault != .walLost(path: files.wal)
            if !isReported { _ = failed(error, losesConnection: true) }
        }
    }

    /// Writes as many bytes as have failed, to find out whether the disk works again.
    private func tryToWrite() {
        let bytes = failure?.bytes ?? 0
        _ = try? perform(proof: .probe) { (writer) throws(SQLiteError) in
            try writer.tryToWrite(bytes: bytes)
        }
    }

    /// Closes the database, then unlocks it.
    func close() {
        // Closing its file would lose the removed WAL.
        if let stranded = access.rescue.stranded { loseWAL(of: stranded, wasRemoved: true) }
        if let writer = access.writer {
            // If this fails, the stored limit stays ahead of the versions that were given, which does no harm.
            try? writer.storeVersion()
            // If this fails, the WAL stays, and the next start reads it.
            _ = try? writer.checkpoint(waiting: 1_000)
        }
        access = .closed(DatabaseAccess.Rescue())
        lock = nil
    }

    // MARK: - Faults

    private func failed(_ error: StoreError, losesConnection: Bool) -> StoreError {
        if losesConnection {
            // The cause may be a WAL that was removed or cut, which only this connection can restore.
            if let writer = access.writer, let loss = findLoss(writer) { return loss }
            access.giveUp()
            fault = error
        }
        if failure == nil { opener.report(.writesFail(error)) }
        var failure = failure ?? WriteFailure(last: .now)
        failure.last = .now
        failure.isOver = false
        self.failure = failure
        state.fault = error
        return error
    }

    /// Checks that the files are complete and in their places; otherwise closes the connection and returns the fault.
    private func findLoss(_ writer: WriterConnection) -> StoreError? {
        let index = writer.connection.walIndex
        switch files.look(walSize: index?.size ?? 0, databaseSize: index?.databaseSize) {
        case .inPlace: return nil
        case .vanished: loseFiles(.vanished(path: opener.database), .vanished(path: opener.database))
        case .walRemoved: loseWAL(of: writer, wasRemoved: true)
        case .walCut: loseWAL(of: writer, wasRemoved: false)
        case .databaseCut:
            // A checkpoint would only enlarge the damage. Reads continue as far as they can.
            access = .unsound
            let error = SQLiteError.damaged("it was cut while the server ran")
            fault = .unusable(SQLiteOpenError.notADatabase(path: opener.database, error).shared)
            state.fault = fault
            opener.report(.writesFail(fault))
        }
        return fault
    }

    private func loseFiles(_ fault: StoreError, _ event: StoreEvent) {
        access.giveUp()
        self.fault = fault
        state.fault = fault
        let wasInPlace = stopReads()
        if wasInPlace { opener.report(event) }
    }

    /// Stops the handles from reading until the database is open again, and tells the observer.
    ///
    /// - Returns: Whether they could read until now.
    private func stopReads() -> Bool {
        // The order matters: a read that begins after the observer was called must fail.
        defer { state.observer?.didChangeEverything() }
        return state.isInPlace.exchange(false, ordering: .acquiringAndReleasing)
    }

    /// Saves what can be saved of a WAL that was removed or cut, so that the database can be opened again.
    private func loseWAL(of writer: WriterConnection, wasRemoved: Bool) {
        var rescue = access.rescue
        defer { access = .closed(rescue) }
        access.giveUp()
        fault = .walLost(path: files.wal)
        state.fault = fault
        let wasInPlace = stopReads()
        let commits = writer.connection.walCommits
        do throws(SQLiteError) {
            let loss = try writer.connection.repairWAL(files.wal, wasRemoved: wasRemoved)
            // Kept until its content is in the database, because the restored WAL may be removed again.
            rescue.stranded = loss == .none ? writer : nil
            if loss == .pages { rescue.mayBeMixed = true }
            if loss != .none { opener.report(.walCut(path: files.wal, commits: commits)) }
            // Reads failed because of the WAL; they work again once the database is open.
            state.endReadFaults()
        } catch {
            // For example because the disk is full. The WAL's content is not given up while its file is open here.
            rescue.stranded = writer
            fault = .write(StoreFault(error))
            state.fault = fault
            if wasInPlace { opener.report(.walRemoved(path: files.wal, error)) }
        }
    }

    /// Opens the database again if reads fail for no passing reason, and reports when none has failed for a while.
    private func checkReads() {
        guard let found = state.readFaults else {
            isReadFaultReported = false
            return
        }
        if !isReadFaultReported {
            isReadFaultReported = true
            opener.report(.readsFail(found.error))
            // New connections may be able to read.
            fault = found.error
            access.giveUp()
        } else if ContinuousClock.now - found.last > Self.calmReadTime {
            isReadFaultReported = false
            state.endReadFaults()
            opener.report(.readsRecovered(failed: found.count))
        }
    }

    private func usableWriter() throws(StoreError) -> WriterConnection {
        switch access {
        case .open(let writer): return writer
        case .unsound: throw fault
        case .closed: return try reopen()
        }
    }

    /// Opens the database again, and saves what a fault has left of the WAL.
    private func reopen() throws(StoreError) -> WriterConnection {
        let now = ContinuousClock.now
        if let lastAttempt, now - lastAttempt < Self.pause { throw fault }
        lastAttempt = now
        if let stranded = access.rescue.stranded {
            loseWAL(of: stranded, wasRemoved: true)
            if case .write = fault { throw fault }
        }
        let opened: WriterConnection
        do throws(SQLiteOpenError) {
            if !isLocked { try lockAgain() }
            if access.rescue.stranded == nil { try forgetLostWAL() }
            opened = try openDatabase()
        } catch {
            if case .missing = error { throw fault }
            fault = .unusable(error.shared)
            if case .unsound = access, state.fault == nil {
                state.fault = fault
                opener.report(.writesFail(fault))
            }
            throw fault
        }
        // The order matters: after the observer was called, no read of the former database may begin.
        state.generation.add(1, ordering: .releasing)
        state.observer?.didChangeEverything()
        if !state.isInPlace.exchange(true, ordering: .releasing) { opener.report(.returned(path: opener.database)) }
        return opened
    }

    private func openDatabase() throws(SQLiteOpenError) -> WriterConnection {
        let opened = try opener.reopen(state.retention)
        let connection = opened.writer.connection
        let mayBeMixed = access.rescue.mayBeMixed || opened.mayBeMixed
        if let stranded = access.rescue.stranded {
            access = .closed(DatabaseAccess.Rescue(mayBeMixed: mayBeMixed))
            stranded.connection.emptyWAL()
            opener.report(.walPutBack(path: files.wal))
        }
        if mayBeMixed {
            // The database stays unsound unless the check succeeds.
            access = .unsound
            try Schema.opening(opener.database) { () throws(SQLiteError) in try connection.checkForMixedPages() }
        }
        // Equal keys are not replaced, otherwise rows that were sealed with them meanwhile would be refused.
        if !opened.keys.index.hasBytes(of: state.sealing.keys.index) { state.sealing.replace(opened.keys) }
        prepare(opened.writer)
        access = .open(opened.writer)
        files.adopt(wal: connection.wal?.identity)
        return opened.writer
    }

    /// Whether this process still has the locks of the folder and the database that the paths lead to.
    private var isLocked: Bool { directory.isInPlace && lock?.isInPlace == true }

    private func lockAgain() throws(SQLiteOpenError) {
        // Released first: it is a lock on a file that the path no longer leads to, or in another folder.
        lock = nil
        do throws(DataDirectoryError) {
            try directory.lockAgain()
        } catch {
            throw .directory(error)
        }
        lock = try DatabaseLock(in: directory.path, expecting: opener.database)
    }

    /// Discards a WAL that was removed or cut while the writer had no connection open.
    private func forgetLostWAL() throws(SQLiteOpenError) {
        guard FileStatus.exists(opener.database) else { return }
        try Schema.opening(opener.database) { () throws(SQLiteError) in
            let connection = try SQLiteConnection(path: opener.database, mode: .readWrite)
            guard let loss = try connection.forgetLostWAL(files.wal) else { return }
            if loss == .pages { access = .closed(DatabaseAccess.Rescue(mayBeMixed: true)) }
            opener.report(.walCut(path: files.wal, commits: loss == .none ? 0 : nil))
        }
    }

    /// Reports when a limit of the store is reached, and when no limit is reached any more.
    private func noteLimit() {
        guard let limit = access.writer?.reachedLimit else {
            if reportedLimit.take() != nil { opener.report(.belowLimit) }
            return
        }
        guard limit != reportedLimit else { return }
        reportedLimit = limit
        opener.report(.limitReached(limit))
    }
}
