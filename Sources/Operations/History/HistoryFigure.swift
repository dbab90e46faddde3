/// A figure whose course over time is kept; its raw value is its name in the answer of `/history`.
enum HistoryFigure: String, CaseIterable, Sendable {
    // Rates, in a second:
    case get, post, other
    /// Answers with a status from 400 on, or an error code other than 50002.
    case errors
    /// Answers with 50001 or a status from 500 on.
    case failures
    /// Requests that were not served for want of a valid credential.
    case denied
    /// Connections beyond the limit.
    case refused
    /// Requests that were sent to a database again.
    case retries

    // Times, in seconds:
    case getMedian = "get_p50"
    case getSlow = "get_p99"
    case postMedian = "post_p50"
    case postSlow = "post_p99"
    case commitMedian = "commit_p50"
    case commitSlow = "commit_p99"
    case syncSlow = "sync_p99"
    case readMedian = "read_p50"
    case readSlow = "read_p99"

    // Shares of 1:
    case hitRatio = "hit_ratio"
    /// The GETs that were answered with 50002: no token is stored under the id.
    case notFoundRatio = "not_found_ratio"
    /// Of one core.
    case processor

    // States:
    case connections
    /// Resident bytes of the process.
    case memory
    case cacheBytes = "cache_bytes"
    /// Bytes of `limits.buffers` in use.
    case bufferBytes = "buffer_bytes"
    case tokens
    case sessions
    /// Bytes of the database and its WAL.
    case storeBytes = "store_bytes"
    /// Bytes that may still be written to the data folder's file system.
    case diskFree = "disk_free"
    /// Requests that wait for a database.
    case waiting

    /// Whether the value of ten seconds is the largest of its seconds, because a short peak matters; otherwise it is that of
    /// the ten seconds as a whole, and of a state that at their end.
    var isPeak: Bool {
        switch self {
        case .errors, .failures, .denied, .refused, .retries, .connections, .memory, .cacheBytes, .bufferBytes,
            .waiting:
            true
        default: false
        }
    }

    /// Whether only a store in a database on other machines has the figure.
    private var isRemote: Bool {
        switch self {
        case .retries, .readMedian, .readSlow, .waiting: true
        default: false
        }
    }

    /// Whether only a store on this machine has the figure.
    private var isLocal: Bool {
        switch self {
        case .hitRatio, .cacheBytes, .commitMedian, .syncSlow, .tokens, .storeBytes: true
        default: false
        }
    }

    /// The figures of a server.
    ///
    /// - Parameter isRemote: Whether its store is in a database on other machines.
    static func all(isRemote: Bool) -> [HistoryFigure] {
        allCases.filter { isRemote ? !$0.isLocal : !$0.isRemote }
    }
}
