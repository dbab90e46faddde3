internal import TokenStore

/// Decides what the writer does when it has nothing to commit, and when it has to do it all the same.
///
/// The WAL is moved into the database a second after the last commit, which keeps replaced values from staying in it, and
/// when it has grown to 16 MiB, which keeps it small. In the second case all but its end is moved ahead, while commits go
/// on, unless the database is small; a WAL of 32 MiB is moved at once, whatever is left to do, as far as readers allow.
///
/// Under load its file is then written again from the beginning: a commit that makes a file longer costs the file system a
/// commit of its own. A minute after its first commit, and in quiet times, it is cut to nothing.
///
/// Only a table of times: it takes the time and returns what to do.
struct MaintenanceSchedule {
    enum Step: Equatable {
        case lookAfterFiles
        /// Holds the WAL as it is, so that it can be moved that far after another commit.
        case holdWAL
        /// Moves the WAL ahead of a checkpoint; see BackgroundCheckpointer.
        case checkpointAhead
        /// Moves the WAL into the database, and cuts it to nothing if it `empties` it.
        case checkpoint(empties: Bool)
        case expire
        case releasePages
    }

    static let comfortableWAL = 16 << 20
    static let largestWAL = 32 << 20
    /// What is left for a checkpoint, of a WAL that was moved ahead.
    static let restOfWAL = 4 << 20
    /// After the last commit.
    private static let quietTime = Duration.seconds(1)
    /// After a checkpoint that readers held up; twice as long after each further one, as commits may wait in all of them.
    private static let checkpointPauses = Duration.milliseconds(100)...Duration.seconds(3)
    private static let fileInterval = Duration.seconds(1)
    /// The longest that replaced values stay in the WAL.
    private static let emptyInterval = Duration.seconds(60)

    private var retention: Retention
    private var expiryInterval: Duration?
    private var nextFileLook: ContinuousClock.Instant
    private var nextExpiry: ContinuousClock.Instant?
    /// Not before this.
    private var checkpointAllowed: ContinuousClock.Instant
    private var checkpointPause = Self.checkpointPauses.lowerBound
    /// Nil when the WAL is empty.
    private var quietCheckpoint: ContinuousClock.Instant?
    /// The first commit since the WAL was cut to nothing; nil when there was none.
    private var filledSince: ContinuousClock.Instant?
    /// What is being done ahead of the next checkpoint.
    private var move = Move.none
    /// Bytes of the WAL when it was held.
    private var heldWAL = 0
    /// Bytes of the WAL that need not be moved ahead any more.
    private var movedWAL = 0
    /// At first for what an earlier run has left.
    private var releasesPages = true
    /// Rows were dropped since the WAL was last emptied for it.
    private var hasRemoved = false

    private enum Move {
        case none
        /// The WAL is held, and there was no commit since.
        case holding
        /// The WAL is held, and there was one.
        case due
        /// The database is being synced.
        case synchronizing
    }

    init(retention: Retention, at now: ContinuousClock.Instant) {
        self.retention = retention
        expiryInterval = Self.expiryInterval(retention)
        nextFileLook = now + Self.fileInterval
        nextExpiry = expiryInterval.map { _ in now }
        checkpointAllowed = now
        filledSince = now
        // What an earlier run has left in the WAL.
        quietCheckpoint = now + Self.quietTime
    }

    /// A tenth of the time that tokens are kept is exact enough, and a minute often enough.
    private static func expiryInterval(_ retention: Retention) -> Duration? {
        [retention.sinceWritten, retention.sinceExpired].compactMap(\.self).min()
            .map { min(max($0 / 10, .milliseconds(100)), .seconds(60)) }
    }

    // MARK: - What happened

    /// Another retention may be in force.
    mutating func noteRetention(_ retention: Retention, at now: ContinuousClock.Instant) {
        guard retention != self.retention else { return }
        self.retention = retention
        expiryInterval = Self.expiryInterval(retention)
        nextExpiry = expiryInterval.map { _ in now }
    }

    mutating func noteCommit(at now: ContinuousClock.Instant) {
        quietCheckpoint = now + Self.quietTime
        filledSince = filledSince ?? now
    }

    /// What was to be committed is not, and may be in the WAL all the same.
    mutating func noteFailure(at now: ContinuousClock.Instant) {
        quietCheckpoint = quietCheckpoint ?? now + Self.quietTime
    }

    /// Tells of the WAL after whatever has been done.
    mutating func noteWAL(size: Int, isSynchronizing: Bool) {
        // It has begun anew.
        if size < movedWAL { movedWAL = 0 }
        if move == .holding && size != heldWAL { move = .due }
        if move == .synchronizing && !isSynchronizing { move = .none }
    }

    /// - Parameter empties: As in the step that was taken.
    mutating func noteCheckpoint(isComplete: Bool, empties: Bool, at now: ContinuousClock.Instant) {
        let isEmpty = isComplete && empties
        if isEmpty { filledSince = nil }
        quietCheckpoint = isEmpty ? nil : now + Self.quietTime
        checkpointAllowed = isComplete ? now : now + checkpointPause
        checkpointPause =
            isComplete ? Self.checkpointPauses.lowerBound : min(checkpointPause * 2, Self.checkpointPauses.upperBound)
        if isComplete { movedWAL = 0 }
        // Nothing is held any more, nor being synced.
        move = .none
    }

    /// - Parameter walSize: Bytes in the WAL that is held.
    mutating func noteHold(walSize: Int) {
        (move, heldWAL) = (.holding, walSize)
    }

    /// - Parameter moved: Bytes of the WAL that are in the database; nil when that was not to be done.
    mutating func noteMoveAhead(moved: Int?) {
        (move, movedWAL) = (.synchronizing, moved ?? heldWAL)
    }

    /// - Parameter isDone: Nothing is left to be dropped for now.
    mutating func noteExpiry(removed: Int, isDone: Bool, at now: ContinuousClock.Instant) {
        nextExpiry = isDone ? expiryInterval.map { now + $0 } : now
        if removed > 0 { (releasesPages, hasRemoved) = (true, true) }
        // Until then what was dropped can be read in the WAL.
        if isDone && hasRemoved { (quietCheckpoint, hasRemoved) = (now, false) }
    }

    mutating func noteReleasedPages(more: Bool, at now: ContinuousClock.Instant) {
        releasesPages = more
        if more { quietCheckpoint = now + Self.quietTime }
    }

    mutating func noteLookAfterFiles(at now: ContinuousClock.Instant) {
        nextFileLook = now + Self.fileInterval
    }

    // MARK: - What to do

    /// The step that is due; nil when there is none.
    func due(at now: ContinuousClock.Instant, walSize: Int, isIdle: Bool) -> Step? {
        // A checkpoint would wait for the sync, and commits for the checkpoint.
        if now >= checkpointAllowed, move != .synchronizing || walSize >= Self.largestWAL {
            let isOld = filledSince.map { now - $0 >= Self.emptyInterval } ?? false
            if isIdle, isOld || quietCheckpoint.map({ now >= $0 }) ?? false { return .checkpoint(empties: true) }
            let isMoved = move == .none && walSize - movedWAL < Self.restOfWAL
            if walSize >= (isMoved ? Self.comfortableWAL : Self.largestWAL) { return .checkpoint(empties: isOld) }
        }
        if move == .due { return .checkpointAhead }
        if move == .none, walSize >= Self.comfortableWAL, walSize - movedWAL >= Self.restOfWAL { return .holdWAL }
        if now >= nextFileLook { return .lookAfterFiles }
        if let nextExpiry, now >= nextExpiry { return .expire }
        return isIdle && releasesPages ? .releasePages : nil
    }

    /// When to look again even if nothing comes in.
    var next: ContinuousClock.Instant {
        var next = nextFileLook
        if let nextExpiry { next = min(next, nextExpiry) }
        if let quietCheckpoint, move != .synchronizing {
            let old = filledSince.map { $0 + Self.emptyInterval } ?? quietCheckpoint
            next = min(next, max(min(quietCheckpoint, old), checkpointAllowed))
        }
        return next
    }
}
