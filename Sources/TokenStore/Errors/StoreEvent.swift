/// Something about a store that its operator should know.
package enum StoreEvent: Hashable, Sendable, CustomStringConvertible {
    /// The first start made a key ring.
    case madeKeyRing(path: String)
    /// The key ring may be read by the group of a pod's volumes.
    case keyRingOpenToGroup(path: String, group: UInt32)
    /// Tokens or sessions are sealed with a key that the key ring lacks.
    case missingKey(number: Int)
    /// A store was made although there was a key ring already.
    case madeStoreBesideRing(path: String, keyRing: String)
    /// The store has counted this many erasures that are in no file.
    case erasuresMissing(count: Int)
    /// The database was read into the page cache.
    case preloaded(bytes: Int, took: Duration)
    /// The database was not read ahead, as it is too large for this machine's memory.
    case notPreloaded(bytes: Int, memory: Int)
    /// Writes have begun to fail.
    case writesFail(StoreError)
    /// Writes succeed again, after so many that failed.
    case writesRecovered(failed: Int)
    /// Reads have begun to fail.
    case readsFail(StoreError)
    /// No read has failed for ten seconds, after so many that did.
    case readsRecovered(failed: Int)
    /// New ids are refused from now on.
    case limitReached(StoreLimit)
    /// New ids are accepted again.
    case belowLimit
    /// Expired tokens were deleted.
    case expired(count: Int)
    /// The clock has jumped by so many seconds: no token is deleted until it is confirmed, which takes so many.
    case expiryHeld(seconds: Int64, confirmation: Int64)
    /// Tokens are deleted again, after `expiryHeld`.
    case expiryGoesOn
    /// An event that only one kind of store has, in its own words.
    case own(Severity, String)

    /// How urgent an event is.
    package enum Severity: Sendable {
        case fault
        case warning
        case note
        case detail
        /// For debugging.
        case trace
    }

    package var severity: Severity {
        switch self {
        case .missingKey, .writesFail, .readsFail: .fault
        case .madeKeyRing, .madeStoreBesideRing, .erasuresMissing, .limitReached, .expiryHeld: .warning
        case .keyRingOpenToGroup, .writesRecovered, .readsRecovered, .belowLimit, .expiryGoesOn: .note
        case .expired, .notPreloaded: .detail
        case .preloaded: .trace
        case .own(let severity, _): severity
        }
    }

    package var description: String {
        switch self {
        case .madeKeyRing(let path):
            """
            made the key ring \(path): back it up, apart from the database. Without the key ring the tokens are lost; whoever \
            has it and the database can read them
            """
        case .keyRingOpenToGroup(let path, let group):
            """
            the key ring \(path) may be read by group \(group), which this pod's volumes belong to (fsGroup): no other pod on the \
            node should be in that group. Better provide it as a secret, outside the volume of the tokens
            """
        case .missingKey(let number):
            """
            tokens are sealed with key \(number), which the key ring does not have: they cannot be read, and clients are told that \
            there are none (50002). Put the key ring of that time back (sealing.key_ring), and restart the server; \
            unless token-cache keyring rotate has said that these rows do not open with it either
            """
        case .madeStoreBesideRing(let path, let keyRing):
            """
            made an empty store \(path), although its key ring \(keyRing) was there already; \
            if tokens are missing, is this the right folder?
            """
        case .erasuresMissing(let count):
            """
            \(count) \(count == 1 ? "user was" : "users were") erased whom the file erasures beside the key ring does not have: a backup \
            from before that brings them back. Put the latest copy of the file there
            """
        case .preloaded(let bytes, let duration):
            "the system has the database in its memory, \(bytes) bytes after \(Int(duration / .milliseconds(1))) ms"
        case .notPreloaded(let bytes, let memory):
            """
            the database is not read ahead: it has \(bytes) bytes, more than half of the \(memory) bytes of memory here; \
            what is asked for comes from the disk as long as it is not in memory
            """
        case .writesFail(let error): "tokens cannot be stored, clients are told so: \(error)"
        case .writesRecovered(let failed): "tokens are stored again, after \(failed) that were not"
        case .readsFail(let error):
            "tokens cannot be read, clients are told so: \(error); the database is being opened again. See token-cache verify"
        case .readsRecovered(let failed): "no read has failed for a while, after \(failed) that did"
        case .limitReached(let limit): "\(limit)"
        case .belowLimit: "the store is below its limits, new ids are accepted again"
        case .expiryHeld(let seconds, let confirmation):
            """
            no token is deleted for now: the clock has gone \(Self.hours(seconds)) the system's uptime since the server last \
            checked it, or the server was stopped meanwhile, or an old backup restored. Set the clock right if it is wrong; \
            if it stays as it is, deleting begins in \(confirmation / 3_600) hours
            """
        case .expiryGoesOn: "expired tokens are deleted again"
        case .own(_, let text): text
        case .expired(let count): "deleted \(count) expired \(count == 1 ? "token" : "tokens")"
        }
    }

    private static func hours(_ seconds: Int64) -> String {
        "\(seconds.magnitude / 3_600) hours \(seconds < 0 ? "behind" : "ahead of")"
    }
}
