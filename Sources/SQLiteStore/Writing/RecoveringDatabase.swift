internal import Metrics
internal import Synchronization
internal import System
internal import TokenStore

/// The writer's database and its recovery from faults.
///
/// After an error of the disk nobody knows what of a commit has reached it, nor whether the system's page cache still tells
/// the truth (a failed fsync is reported once). So the connection is given up, and before the next write the database is
/// opened again and all of the WAL is moved into it and synced. Until that works every write fails.
///
/// Used by the writer's thread.
final class RecoveringDatabase {
    private let opener: StoreOpener
    private let state: StoreState
    private let directory: DataDirectory
    /// Nil after the end, and while the database cannot be locked again.
    private var lock: DatabaseLock?
    private var files: StoreFiles
    private var access: DatabaseAccess
    private var fault: StoreError
    private var lastAttempt: ContinuousClock.Instant?
    /// Since writes began to fail; nil while they do not.
    private var failure: WriteFailure?
    private var reportedLimit: StoreLimit?
    private var isReadFaultTold = false

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
        state.metrics.tokens.set(UInt64(writer.tokenCount))
        writer.connection.measureSyncs(into: state.metrics.syncTime)
        lastClockLook = writer.lastClockLook
        fault = .vanished(path: opener.database)
        do throws(SQLiteError) {
            try opener.settle(writer)
        } catch {
            // On a full disk, say. What is there can be read all the same; for writes it is tried again.
            _ = failed(.write(StoreFault(error)), losesConnection: true)
        }
        if mayBeMixed {
            // Before the first write the database is opened again and checked, while what can be read is.
            access = .closed(DatabaseAccess.Rescue(mayBeMixed: true))
        }
    }

    /// Bytes of what is in the WAL, whose file may be longer.
    var walSize: Int { access.writer?.walSize ?? 0 }

    /// When the clock was last looked at, as the store had it when it was opened first; see ExpiryClock.
    let lastClockLook: Int64?

    /// Whether what was moved ahead of a checkpoint is being synced in the background.
    var isSynchronizing: Bool { access.writer?.checkpointer?.isSynchronizing ?? false }

    /// Makes rows durable; see `WriterConnection.commit`.
    func commit(_ rows: [Row]) -> [Result<Void, StoreError>] {
        let began = ContinuousClock.now
        let outcomes: [Result<Void, StoreError>]
        do throws(StoreError) {
            outcomes = try perform(writing: rows.map(\.id), proof: .group) {
                (writer) throws(SQLiteError) in
                // Not before: opening the database again may have brought another store's keys.
                let acceptance = state.sealing.acceptance
                return try writer.commit(rows) { acceptance.accepts($0) }
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
        writing ids: [[UInt8]] = [], proof: Proof = .none, _ body: (WriterConnection) throws(SQLiteError) -> Result
    ) throws(StoreError) -> Result {
        let writer = try usableWriter()
        let observer = ids.isEmpty ? nil : state.observer
        // In this order: whoever keeps what a session reads must learn of the write before a session can see it, and of its end
        // after no session goes on reading from before it.
        observer?.willWrite(ids)
        state.commitCount.add(1, ordering: .acquiringAndReleasing)
        defer {
            state.commitCount.add(1, ordering: .acquiringAndReleasing)
            observer?.didWrite(ids)
        }
        let syncedBefore = failure == nil ? 0 : writer.connection.syncedBytes
        let result: Result
        do throws(SQLiteError) {
            result = try body(writer)
        } catch {
            let error = failed(.write(StoreFault(error)), losesConnection: !error.isOfMoment)
            if proof == .none { failure?.needsProbe = true }
            throw error
        }
        // Whatever was written to files that nobody will find again is lost.
        if let loss = lookForLoss(writer) { throw loss }
        if let failure, proof == .probe || proof == .group && !failure.needsProbe {
            let synced = writer.connection.syncedBytes - syncedBefore
            if synced > failure.bytes { self.failure?.isOver = true }
        }
        state.metrics.tokens.set(UInt64(writer.tokenCount))
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
        if let writer = access.writer, lookForLoss(writer) == nil { lookForFailedReads() }
        if access.writer == nil || !isLocked {
            // Without its lock there may be a second server: nothing more is written before the folder is locked again.
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
            // Otherwise it has been told of.
            let isTold = state.fault != nil && state.fault != .walLost(path: files.wal)
            if !isTold { _ = failed(error, losesConnection: true) }
        }
    }

    /// Writes as much as has failed, to see whether it works again.
    private func tryToWrite() {
        let bytes = failure?.bytes ?? 0
        _ = try? perform(proof: .probe) { (writer) throws(SQLiteError) in
            try writer.tryToWrite(bytes: bytes)
        }
    }

    /// Closes the database, and then gives the folder free.
    func close() {
        // With its file closed, the removed WAL would be lost.
        if let stranded = access.rescue.stranded { loseWAL(of: stranded, wasRemoved: true) }
        if let writer = access.writer {
            // If this fails, the stored counts stay ahead of the seals that were made, which does no harm.
            try? writer.storeSeals()
            // If it fails the WAL stays, and the next start reads it.
            _ = try? writer.checkpoint(waiting: 1_000)
        }
        access = .closed(DatabaseAccess.Rescue())
        lock = nil
    }

    // MARK: - Faults

    private func failed(_ error: StoreError, losesConnection: Bool) -> StoreError {
        if losesConnection {
            // The error may come from a WAL that was removed or cut, which only this connection can put back.
            if let writer = access.writer, let loss = lookForLoss(writer) { return loss }
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

    /// Looks whether the files are in their place and whole; if not, the connection is given up.
    private func lookForLoss(_ writer: WriterConnection) -> StoreError? {
        let index = writer.connection.walIndex
        switch files.look(walSize: index?.size ?? 0, databaseSize: index?.databaseSize) {
        case .inPlace: return nil
        case .vanished: loseFiles(.vanished(path: opener.database), .vanished(path: opener.database))
        case .walRemoved: loseWAL(of: writer, wasRemoved: true)
        case .walCut: loseWAL(of: writer, wasRemoved: false)
        case .databaseCut:
            // Moving the WAL into it would only enlarge the damage. Reads go on as far as they can.
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

    /// Saves what can be saved of a WAL that was removed or cut, so that the database can be opened anew.
    private func loseWAL(of writer: WriterConnection, wasRemoved: Bool) {
        var rescue = access.rescue
        defer { access = .closed(rescue) }
        access.giveUp()
        fault = .walLost(path: files.wal)
        state.fault = fault
        let wasInPlace = leavePlace()
        let commits = writer.connection.walCommits
        do throws(SQLiteError) {
            let loss = try writer.connection.repairWAL(files.wal, wasRemoved: wasRemoved)
            // Kept until its content is in the database, as the WAL that was put back may be removed once more.
            rescue.stranded = loss == .none ? writer : nil
            if loss == .pages { rescue.mayBeMixed = true }
            if loss != .none { opener.report(.walCut(path: files.wal, commits: commits)) }
            // Reads failed because of the WAL, and work again when the database is open again.
            state.endReadFaults()
        } catch {
            // On a full disk, say. What is in the WAL is not given up as long as it is open here.
            rescue.stranded = writer
            fault = .write(StoreFault(error))
            state.fault = fault
            if wasInPlace { opener.report(.walRemoved(path: files.wal, error)) }
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
            access.giveUp()
        } else if ContinuousClock.now - found.last > Self.calmReadTime {
            isReadFaultTold = false
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
        // In this order: a read of the former database has begun before the observer is told.
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
            // Unless the check finds that it is sound.
            access = .unsound
            try Schema.opening(opener.database) { () throws(SQLiteError) in try BackupFile.check(connection) }
        }
        // The same keys stay the same, or rows that were sealed with them meanwhile would be refused.
        if !opened.keys.index.hasBytes(of: state.sealing.keys.index) { state.sealing.replace(opened.keys) }
        connection.measureSyncs(into: state.metrics.syncTime)
        access = .open(opened.writer)
        files.adopt(wal: connection.wal?.identity)
        return opened.writer
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
    private func forgetLostWAL() throws(SQLiteOpenError) {
        guard FileStatus.exists(opener.database) else { return }
        try Schema.opening(opener.database) { () throws(SQLiteError) in
            let connection = try SQLiteConnection(path: opener.database, mode: .readWrite)
            guard let loss = try connection.forgetLostWAL(files.wal) else { return }
            if loss == .pages { access = .closed(DatabaseAccess.Rescue(mayBeMixed: true)) }
            opener.report(.walCut(path: files.wal, commits: loss == .none ? 0 : nil))
        }
    }

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
