/// Whether the writer's database can be used, and what has to happen before it can.
enum DatabaseAccess {
    case open(WriterConnection)
    /// Closed after a fault; it must be opened again before the next use.
    case closed(Rescue)
    /// Pages are missing or belong to different commits: only restoring a backup helps, for which the server has to be
    /// stopped.
    case unsound

    /// What has to be saved or checked when the database is opened again.
    struct Rescue {
        /// The connection whose WAL was removed.
        ///
        /// It is kept until that WAL's content is in the database, because its open
        /// file is the only copy that cannot be removed.
        var stranded: WriterConnection?
        /// Whether pages may belong to different commits, because a lost part of the WAL had been checkpointed in part.
        var mayBeMixed = false
    }

    /// Nil unless the database is open.
    var writer: WriterConnection? {
        if case .open(let writer) = self { writer } else { nil }
    }

    /// Empty unless the database is closed.
    var rescue: Rescue {
        if case .closed(let rescue) = self { rescue } else { Rescue() }
    }

    /// Closes the connection, so that the next use opens the database again.
    mutating func giveUp() {
        if case .open = self { self = .closed(Rescue()) }
    }
}
