internal import TokenStore

/// Events that only a SQLite store has.
extension StoreEvent {
    /// The WAL is damaged and its end is dropped, which the operator has accepted.
    static func damagedWALAccepted(path: String, _ damage: WALDamage, copy: String) -> StoreEvent {
        own(
            .fault,
            """
            the WAL \(path) is damaged: \(damage). These commits are lost, although clients were told that they are stored; \
            the operator has accepted that, and a copy of the WAL is kept as \(copy). The database is checked next
            """
        )
    }

    /// The WAL of a store that a backup replaces is damaged.
    static func damagedWALReplaced(path: String, _ damage: WALDamage, copy: String) -> StoreEvent {
        own(
            .warning,
            "the WAL \(path) of the store that is replaced is damaged: \(damage). A copy of it is kept as \(copy)"
        )
    }

    /// The store is sealed now, but copies of damaged WALs from before are still there.
    static func clearCopiesKept(paths: [String]) -> StoreEvent {
        own(
            .warning,
            """
            the store is sealed, but copies of damaged WALs are kept that may hold tokens in the clear: \
            \(paths.joined(separator: ", ")); remove them when they are of no use
            """
        )
    }

    /// A user was erased, and with it copies of damaged WALs that may have held it.
    static func damagedWALCopiesErased(paths: [String]) -> StoreEvent {
        own(
            .warning,
            """
            a user was erased, and the copies of damaged WALs that may have held it were removed: \
            \(paths.joined(separator: ", "))
            """
        )
    }

    /// The WAL was removed, and cannot be restored yet.
    static func walRemoved(path: String, _ error: SQLiteError) -> StoreEvent {
        own(
            .fault,
            """
            the WAL \(path), which holds tokens, was removed. The server has it open still and will put it back: do not stop \
            the server before it says so. It cannot do so yet: \(error)
            """
        )
    }

    /// The WAL was removed, and was restored without a loss.
    static func walPutBack(path: String) -> StoreEvent {
        own(
            .warning, "the WAL \(path) was removed while the server ran; it was put back as it was, and nothing is lost"
        )
    }

    /// The WAL was cut.
    ///
    /// - Parameters:
    ///   - path: The WAL's.
    ///   - commits: Commits since the WAL was last checkpointed completely; nil if unknown.
    static func walCut(path: String, commits: Int?) -> StoreEvent {
        own(.fault, loss(path, commits))
    }

    private static func loss(_ path: String, _ commits: Int?) -> String {
        let cause = "the WAL \(path) was cut while the server ran"
        switch commits {
        case 0: return "\(cause); all of it was in the database already, and nothing is lost"
        case .some(let commits):
            return """
                \(cause): what its last \(commits) \(commits == 1 ? "commit" : "commits") stored may be lost, although \
                clients were told that it is stored; the database continues with what was checkpointed before
                """
        case nil:
            return """
                the WAL \(path) was cut or removed while it was not open, after a fault: what was stored since the last \
                checkpoint may be lost, although clients were told that it is stored
                """
        }
    }

    private static func own(_ severity: Severity, _ text: String) -> StoreEvent {
        .own(StoreNotice(severity, text))
    }
}
