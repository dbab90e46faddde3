/// Something about a store that its operator should know.
package enum StoreEvent: Hashable, Sendable, CustomStringConvertible {
    /// The first start made a key ring.
    case madeKeyRing(path: String)
    /// There was no store, but a key ring.
    case madeStoreBesideRing(path: String, keyRing: String)
    /// An earlier version has written the database, which becomes one of this version.
    case converting(path: String)
    /// An earlier version has written the database, which has become one of this version without being copied.
    case upgraded(path: String, from: Int, to: Int)
    /// So many tokens of it have been taken over; told every few seconds.
    case converted(tokens: Int)
    /// The system has the database in its memory.
    case preloaded(bytes: Int, took: Duration)
    /// It has not, for the database is too large for so much memory.
    case notPreloaded(bytes: Int, memory: Int)
    /// Writes have begun to fail.
    case writesFail(StoreError)
    /// Writes succeed again, after so many that failed.
    case writesRecovered(failed: Int)
    /// Reads have begun to fail.
    case readsFail(StoreError)
    /// No read has failed for ten seconds, after so many that did.
    case readsRecovered(failed: Int)
    /// The WAL is damaged and its end is dropped, which the operator has accepted.
    case damagedLogAccepted(path: String, LogDamage, copy: String)
    /// The WAL of a store that a backup replaces is damaged.
    case damagedLogReplaced(path: String, LogDamage, copy: String)
    /// The store is sealed now, and copies of damaged WALs from before that are still there.
    case clearCopiesKept(paths: [String])
    /// The files of the store are gone.
    case vanished(path: String)
    /// The WAL was removed and cannot be put back yet.
    case logRemoved(path: String, SQLiteError)
    /// The WAL was removed and was put back, whole.
    case logPutBack(path: String)
    /// The WAL was cut; with the number of commits since all of it was last in the database, nil when that is not known.
    case logCut(path: String, commits: Int?)
    /// They are back.
    case returned(path: String)
    /// New ids are refused from now on.
    case limitReached(StoreLimit)
    /// New ids are accepted again.
    case belowLimit
    /// So many tokens were dropped because their time was over.
    case expired(count: Int)
    /// The clock has jumped, by so many seconds: no token is deleted for now.
    case expiryHeld(seconds: Int64)
    /// Tokens are deleted again, after `expiryHeld`.
    case expiryGoesOn
    /// The newest key has sealed a quarter as often as it may, or more.
    case manySeals(keyNumber: Int, count: Int64)

    /// Whether somebody has to do something.
    package enum Weight: Sendable {
        case fault
        case warning
        case note
        case detail
        /// For whoever looks for it.
        case trace
    }

    package var weight: Weight {
        switch self {
        case .writesFail, .readsFail, .vanished, .logRemoved, .logCut, .damagedLogAccepted: .fault
        case .madeKeyRing, .madeStoreBesideRing, .converting, .limitReached, .expiryHeld, .manySeals, .logPutBack,
            .damagedLogReplaced, .clearCopiesKept:
            .warning
        case .converted, .upgraded, .writesRecovered, .readsRecovered, .returned, .belowLimit, .expiryGoesOn: .note
        case .expired, .notPreloaded: .detail
        case .preloaded: .trace
        }
    }

    package var description: String {
        switch self {
        case .madeKeyRing(let path):
            """
            made the key ring \(path): back it up, apart from the database. \
            Without it the tokens are lost, with it and the database they can be read
            """
        case .madeStoreBesideRing(let path, let keyRing):
            """
            made an empty store \(path), although its key ring \(keyRing) was there already; \
            if tokens are missing, is this the right folder?
            """
        case .converting(let path):
            """
            converting the store \(path), which an earlier version has written, to the form of this one; \
            ten million tokens take a minute or two, and as much room again meanwhile
            """
        case .upgraded(let path, let from, let to):
            """
            the store \(path) had schema \(from) and has schema \(to) now, which earlier versions of token-cache cannot read
            """
        case .converted(let tokens): "\(tokens) tokens have been converted so far"
        case .preloaded(let bytes, let duration):
            "the system has the database in its memory, \(bytes) bytes after \(Int(duration / .milliseconds(1))) ms"
        case .notPreloaded(let bytes, let memory):
            """
            the database is not read ahead: it has \(bytes) bytes, more than half of the \(memory) bytes of memory here; \
            what is asked for comes from the disk as long as it is not in memory
            """
        case .writesFail(let error): "tokens cannot be stored, clients are told so: \(error)"
        case .writesRecovered(let failed): "tokens are stored again, after \(failed) that were not"
        case .vanished(let path):
            "the store \(path) is gone, clients are told so; put it back, or restart to begin with an empty store"
        case .readsFail(let error):
            "tokens cannot be read, clients are told so: \(error); the database is opened anew. See token-cache verify"
        case .readsRecovered(let failed): "no read has failed for a while, after \(failed) that did"
        case .damagedLogAccepted(let path, let damage, let copy):
            """
            the WAL \(path) is damaged: \(damage). These commits are lost, although clients were told that they are stored; \
            the operator has accepted that, and a copy of the WAL is kept as \(copy). The database is checked next
            """
        case .damagedLogReplaced(let path, let damage, let copy):
            "the WAL \(path) of the store that is replaced is damaged: \(damage). A copy of it is kept as \(copy)"
        case .clearCopiesKept(let paths):
            """
            the store is sealed, but copies of damaged WALs are kept that may hold tokens in the clear: \
            \(paths.joined(separator: ", ")); remove them when they are of no use
            """
        case .logRemoved(let path, let error):
            """
            the WAL \(path), which holds tokens, was removed. The server has it open still and will put it back: do not stop \
            the server before it says so. It cannot do so yet: \(error)
            """
        case .logPutBack(let path):
            "the WAL \(path) was removed while the server ran; it was put back as it was, and nothing is lost"
        case .logCut(let path, let commits): Self.loss(path, commits)
        case .returned(let path): "the store \(path) is back"
        case .limitReached(let limit): "\(limit)"
        case .belowLimit: "the store is below its limits, new ids are accepted again"
        case .expiryHeld(let seconds):
            """
            no token is deleted for now: since the server last checked the clock, that is \(Self.hours(seconds)) of the time \
            that has passed by the system's uptime, or the server was stopped meanwhile, or an old backup restored. Set the \
            clock right if it is wrong; if it stays as it is, deleting begins in \(ExpiryClock.confirmation / 3_600) hours
            """
        case .manySeals(let number, let count):
            """
            key \(number) has sealed \(count) times of the \(SealCounts.limit) that are allowed, after which no token is stored any \
            more: make a new key with token-cache keys add, then run token-cache rekey and token-cache keys retire \(number)
            """
        case .expiryGoesOn: "tokens whose time is over are deleted again"
        case .expired(let count): "dropped \(count) \(count == 1 ? "token" : "tokens") whose time was over"
        }
    }

    private static func hours(_ seconds: Int64) -> String {
        "\(seconds.magnitude / 3_600) hours \(seconds < 0 ? "behind" : "ahead")"
    }

    private static func loss(_ path: String, _ commits: Int?) -> String {
        let cause = "the WAL \(path) was cut while the server ran"
        switch commits {
        case 0: return "\(cause); all of it was in the database already, and nothing is lost"
        case .some(let commits):
            return """
                \(cause): what its last \(commits) \(commits == 1 ? "commit" : "commits") stored may be lost, although \
                clients were told that it is stored; the database goes on with what was moved into it before
                """
        case nil:
            return """
                the WAL \(path) was cut or removed while it was not open, after a fault: what was stored since it was last moved \
                into the database may be lost, although clients were told that it is stored
                """
        }
    }
}
