/// A period in which writes fail, all of them or some.
struct WriteFailure {
    /// Changes that were not made.
    var count = 0
    var last: ContinuousClock.Instant
    /// Bytes of the largest group that has failed: writing works again when as much can be written.
    var bytes = 0
    /// Whether something other than a group has failed, for example a checkpoint: then a group that is stored proves nothing.
    var needsProbe = false
    /// Whether as much as has failed was written and synced later.
    var isOver = false

    init(last: ContinuousClock.Instant) {
        self.last = last
    }

    /// Counts a group that is not stored.
    mutating func note(_ changes: [Change]) {
        count += changes.count
        bytes = max(bytes, min(changes.reduce(0) { $0 + $1.valueBytes }, Self.largestProbe))
    }

    /// The most that is written to prove that the disk works again.
    private static let largestProbe = 4 << 20
}

extension RecoveringDatabase {
    /// What the success of an operation proves about a disk on which writes have failed.
    enum Proof {
        /// Nothing, because the operation may have needed no free space: a checkpoint, a check of the files or a deletion.
        case none
        /// A group of tokens as large as those that failed can be stored, if that many bytes were synced.
        case group
        /// Writing works again: the operation was a probe, made to find that out.
        case probe
    }
}
