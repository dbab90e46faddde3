/// Whether the writer's database can be used, and what has to happen before it can.
enum DatabaseAccess {
    case open(WriterConnection)
    /// Given up after a fault, to be opened again before the next use.
    case closed(Rescue)
    /// Pages do not fit together, or some are missing: only a backup helps, for which the server has to be stopped.
    case unsound

    /// What has to be saved or checked when the database is opened again.
    struct Rescue {
        /// The connection whose WAL was removed, until the content of that WAL is in the database: its open file is the only
        /// copy that nobody can remove.
        var stranded: WriterConnection?
        /// Whether pages may not fit together, as a part of the WAL was lost that had been checkpointed in part.
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

    /// Closes the connection; the database is to be opened again.
    mutating func giveUp() {
        if case .open = self { self = .closed(Rescue()) }
    }
}
