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

    /// The files were removed, cut or replaced while they were open.
    static func filesLost(_ error: StoreError) -> StoreEvent {
        own(
            .fault,
            "\(error). Clients are told that their tokens are not stored, and the server ends; its next start examines the files"
        )
    }

    private static func own(_ severity: Severity, _ text: String) -> StoreEvent {
        .own(StoreNotice(severity, text))
    }
}
