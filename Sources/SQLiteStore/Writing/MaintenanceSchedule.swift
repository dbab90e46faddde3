internal import TokenStore

/// Decides which maintenance the writer does next: when it is idle, and what cannot wait until it is.
///
/// The WAL is checkpointed one second after the last commit, so that replaced values do not stay in it, and when it has
/// grown to 16 MiB, so that it stays small. In the second case most of it is checkpointed in the background while
/// commits continue, unless the database is small. A WAL of 32 MiB is checkpointed at once, as far as readers allow.
///
/// Under load the WAL's file is then overwritten from its beginning, because a commit that makes a file longer costs
/// the file system a commit of its own. One minute after its first commit, and in quiet times, it is truncated.
///
/// A table of times without side effects: callers pass the time, and carry out the steps.
struct MaintenanceSchedule {
    enum Step: Equatable {
        case lookAfterFiles
        /// Begins a read of the WAL's present state, so that it can be checkpointed up to there after another commit.
        case holdWAL
        /// Checkpoints what was held, and syncs the database in the background; see BackgroundCheckpointer.
        case checkpointAhead
        /// Checkpoints the whole WAL, and truncates it if it `empties` it.
        case checkpoint(empties: Bool)
        case expire
        case releasePages
    }

    static let comfortableWAL = 16 << 20
    static let largestWAL = 32 << 20
    /// The most that is left to the checkpoint after one in the background.
    static let restOfWAL = 4 << 20
    /// Time after the last commit until the WAL is checkpointed.
    private static let quietTime = Duration.seconds(1)
    /// Pauses after a checkpoint that readers held up; each is twice as long as the one before, as commits may wait
    /// during every attempt.
    private static let checkpointPauses = Duration.milliseconds(100)...Duration.seconds(3)
    private static let fileInterval = Duration.seconds(1)
    /// The longest time that replaced values stay in the WAL.
    private static let emptyInterval = Duration.seconds(60)

    private var retention: Retention
    private var expiryInterval: Duration?
    private var nextFileLook: ContinuousClock.Instant
    private var nextExpiry: ContinuousClock.Instant?
    /// No checkpoint before this moment.
    private var checkpointAllowed: ContinuousClock.Instant
    private var checkpointPause = Self.checkpointPauses.lowerBound
    /// When to checkpoint if no commit comes; nil if the WAL is empty.
    private var quietCheckpoint: ContinuousClock.Instant?
    /// The first commit since the WAL was truncated; nil if there was none.
    private var filledSince: ContinuousClock.Instant?
    /// What happens in the background before the next checkpoint.
    private var move = Move.none
    /// Bytes of the WAL when it was held.
    private var heldWAL = 0
    /// Bytes of the WAL that are in the database already.
    private var movedWAL = 0
    /// True at first, for pages that an earlier run has left.
    private var releasesPages = true
    /// Whether rows were deleted since the WAL was last truncated because of that.
    private var hasRemoved = false

    private enum Move {
        case none
        /// The WAL is held, and no commit has followed.
        case holding
        /// The WAL is held, and a commit has followed.
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

    /// Takes over the retention in force, which may have changed.
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

    /// A commit failed; its frames may be in the WAL all the same.
    mutating func noteFailure(at now: ContinuousClock.Instant) {
        quietCheckpoint = quietCheckpoint ?? now + Self.quietTime
    }

    /// Takes the WAL's state after each step.
    mutating func noteWAL(size: Int, isSynchronizing: Bool) {
        // The WAL was restarted.
        if size < movedWAL { movedWAL = 0 }
        if move == .holding && size != heldWAL { move = .due }
        if move == .synchronizing && !isSynchronizing { move = .none }
    }

    /// - Parameter empties: As in the step that was carried out.
    mutating func noteCheckpoint(isComplete: Bool, empties: Bool, at now: ContinuousClock.Instant) {
        let isEmpty = isComplete && empties
        if isEmpty { filledSince = nil }
        quietCheckpoint = isEmpty ? nil : now + Self.quietTime
        checkpointAllowed = isComplete ? now : now + checkpointPause
        checkpointPause =
            isComplete ? Self.checkpointPauses.lowerBound : min(checkpointPause * 2, Self.checkpointPauses.upperBound)
        if isComplete { movedWAL = 0 }
        // A checkpoint ends what was held or being synced.
        move = .none
    }

    /// - Parameter walSize: Bytes in the WAL that is held.
    mutating func noteHold(walSize: Int) {
        (move, heldWAL) = (.holding, walSize)
    }

    /// - Parameter moved: Bytes of the WAL that are in the database; nil if nothing was checkpointed.
    mutating func noteMoveAhead(moved: Int?) {
        (move, movedWAL) = (.synchronizing, moved ?? heldWAL)
    }

    /// - Parameter isDone: Whether no expired row is left for now.
    mutating func noteExpiry(removed: Int, isDone: Bool, at now: ContinuousClock.Instant) {
        nextExpiry = isDone ? expiryInterval.map { now + $0 } : now
        if removed > 0 { (releasesPages, hasRemoved) = (true, true) }
        // Deleted values stay readable in the WAL until then.
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
        // During a sync, a checkpoint would wait for it, and commits for the checkpoint.
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

    /// When to ask again if nothing else happens.
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
