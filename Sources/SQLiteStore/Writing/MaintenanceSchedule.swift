import System
import TokenStore

/// Decides which maintenance the writer does next, and whether it may wait until the writer is idle.
///
/// The WAL is checkpointed one second after the last commit, so that replaced values do not stay in it, and when it has
/// grown to 8 MiB, so that it stays small. Unless the database is small, the WAL is then first copied into the
/// database, which is synced in the background while commits continue, so that the checkpoint has little left to do. A
/// WAL of 32 MiB is checkpointed at once, as far as readers allow; so is one that has taken half of the space that was
/// free on its disk.
///
/// Under load the WAL's file is then overwritten from its beginning, because a commit that makes a file longer costs
/// the file system a commit of its own. One minute after its first commit, and in quiet times, it is truncated.
///
/// A table of times without side effects: callers pass the time, and carry out the steps.
struct MaintenanceSchedule {
    enum Step: Equatable {
        /// Checks the files and the clock, and opens the database again if it is closed.
        case lookAfterFiles
        /// Does most of the work of a checkpoint in the background, see `BackgroundSync`.
        case prepareCheckpoint
        /// Checkpoints the whole WAL, and then truncates it if `empties` is true.
        case checkpoint(empties: Bool)
    }

    /// Bytes of the WAL at which it is checkpointed although commits continue.
    ///
    /// Copying that much takes some ten milliseconds. With a smaller limit, pages that change often would be copied
    /// more often.
    static let comfortableWAL = 8 << 20
    /// Bytes of the WAL at which a checkpoint waits for readers.
    static let largestWAL = 32 << 20
    /// Bytes by which the WAL may have grown since the last sync in the background, at most, when the whole WAL is
    /// checkpointed.
    static let restOfWAL = 4 << 20
    /// Time after the last commit until the WAL is checkpointed.
    private static let quietTime = Duration.seconds(1)
    /// The pause after a checkpoint that readers held up, as commits may wait during every attempt.
    private static let checkpointPause = Duration.seconds(1)
    private static let fileInterval = Duration.seconds(1)
    /// The longest time that replaced values stay in the WAL.
    private static let emptyInterval = Duration.seconds(60)

    private var nextFileLook: ContinuousClock.Instant
    /// No checkpoint before this moment.
    private var checkpointAllowed: ContinuousClock.Instant
    /// When to checkpoint if no commit comes; nil if the WAL is empty.
    private var quietCheckpoint: ContinuousClock.Instant?
    /// When the first commit since the last truncation of the WAL was made; nil if there was none.
    private var filledSince: ContinuousClock.Instant?
    /// Whether the database is being synced in the background, which precedes the checkpoint of the whole WAL.
    private var isSynchronizing = false
    /// The limit of `WALRoom`, in bytes: if the WAL grows beyond it, the disk may lack space for a checkpoint.
    private var room = Int.max
    /// Bytes of the WAL when a checkpoint was last prepared.
    ///
    /// Pages that were still being read then may not have been copied.
    private var preparedWAL = 0

    init(at now: ContinuousClock.Instant) {
        nextFileLook = now + Self.fileInterval
        checkpointAllowed = now
        filledSince = now
        // An earlier run may have left something in the WAL.
        quietCheckpoint = now + Self.quietTime
    }

    // MARK: - What happened

    mutating func noteCommit(at now: ContinuousClock.Instant) {
        quietCheckpoint = now + Self.quietTime
        filledSince = filledSince ?? now
    }

    /// A commit failed; its frames may be in the WAL all the same.
    mutating func noteFailure(at now: ContinuousClock.Instant) {
        quietCheckpoint = quietCheckpoint ?? now + Self.quietTime
    }

    /// The files are about to be looked at.
    mutating func noteLook(at now: ContinuousClock.Instant) { nextFileLook = now + Self.fileInterval }

    /// Takes the WAL's state after each step.
    mutating func noteWAL(size: Int, isSynchronizing: Bool) {
        // The WAL was restarted.
        if size < preparedWAL { preparedWAL = 0 }
        self.isSynchronizing = isSynchronizing
    }

    /// Sets how large the WAL may grow; called repeatedly, because the free space on the disk changes.
    mutating func noteRoom(_ room: WALRoom) {
        self.room = room.limit
    }

    /// - Parameter empties: As in the step that was carried out.
    mutating func noteCheckpoint(isComplete: Bool, empties: Bool, at now: ContinuousClock.Instant) {
        let isEmpty = isComplete && empties
        if isEmpty { filledSince = nil }
        quietCheckpoint = isEmpty ? nil : now + Self.quietTime
        checkpointAllowed = isComplete ? now : now + Self.checkpointPause
        if isComplete { preparedWAL = 0 }
        // A checkpoint of the whole WAL waits for the sync.
        isSynchronizing = false
    }

    /// - Parameter walSize: Bytes in the WAL that are copied.
    mutating func notePreparation(walSize: Int) {
        // What readers have held up is left to the checkpoint.
        preparedWAL = walSize
    }

    // MARK: - What to do

    /// The step that is due; nil when there is none.
    func due(at now: ContinuousClock.Instant, walSize: Int, isIdle: Bool) -> Step? {
        // A checkpoint would wait for a sync in the background, and commits for that checkpoint.
        if now >= checkpointAllowed, !isSynchronizing || isTooLarge(walSize) {
            let isOld = filledSince.map { now - $0 >= Self.emptyInterval } ?? false
            if isIdle, isOld || quietCheckpoint.map({ now >= $0 }) ?? false { return .checkpoint(empties: true) }
            let isComfortable = walSize < Self.comfortableWAL
            if isTooLarge(walSize) || !isComfortable && walSize - preparedWAL < Self.restOfWAL {
                // Truncating the WAL frees its space on a disk that is nearly full.
                return .checkpoint(empties: isOld || walSize >= room)
            }
            if !isComfortable { return .prepareCheckpoint }
        }
        if now >= nextFileLook { return .lookAfterFiles }
        return nil
    }

    /// Whether a WAL of this size must be checkpointed now, even if commits have to wait for that.
    func isTooLarge(_ walSize: Int) -> Bool {
        walSize >= min(Self.largestWAL, room)
    }

    /// When to ask again if nothing else happens.
    var next: ContinuousClock.Instant {
        var next = nextFileLook
        if let quietCheckpoint, !isSynchronizing {
            let old = filledSince.map { $0 + Self.emptyInterval } ?? quietCheckpoint
            next = min(next, max(min(quietCheckpoint, old), checkpointAllowed))
        }
        return next
    }
}

/// How large the WAL may grow before a checkpoint frees its space on a disk that is nearly full.
///
/// A checkpoint copies the WAL's pages into the database, which may grow by as much as the WAL contains. A commit after which no
/// space were left for that fails (`WALWriteBuffer.reserve`); checkpoints in time make that rare.
struct WALRoom {
    /// The smallest limit, in bytes: some frames, so that a full disk does not cause one checkpoint after the other.
    static let least = 64 << 10

    /// The size of the WAL in bytes at which it must be checkpointed; `Int.max` if the free space is unknown.
    let limit: Int

    /// - Parameters:
    ///   - free: The free space on the disk in bytes; nil if it is unknown.
    ///   - file: The bytes that the WAL's file takes on the disk. The WAL overwrites the file up to its end before it makes it longer.
    init(free: Int?, file: Int) {
        guard let free else {
            limit = .max
            return
        }
        // Up to the end of its file, the WAL needs free space for the database only; beyond that, for itself as well.
        limit = max(Self.least, free <= file ? free : file + (free - file) / 2)
    }

    /// Looks up the free space on the disk of a database, and the size of its WAL's file.
    init(ofDatabase path: String) {
        self.init(free: FileSystem(of: path).freeBytes, file: FileStatus.allocatedSize(of: path + "-wal"))
    }
}
