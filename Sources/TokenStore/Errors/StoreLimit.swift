/// Why a request is refused at once, or no longer waited for.
package enum StoreOverload: Hashable, Sendable, CustomStringConvertible {
    /// Waiting requests and answers take all of `limits.buffers`.
    case buffers
    /// Waiting rows take all of `store.queue.max_bytes`.
    case queue(bytes: Int)
    /// As many requests wait for a database as `store.queue.max_requests` allows.
    case requests(Int)
    /// One write to the disk has taken longer than `store.queue.max_wait`.
    case stalled(limit: Duration)
    /// The store has not given an outcome within its time limit.
    case unanswered(limit: Duration)

    package var description: String {
        switch self {
        case .buffers:
            "requests and answers under way take all the memory that limits.buffers allows; this one was refused"
        case .queue(let bytes):
            """
            tokens that wait to be written take the \(bytes) bytes that store.queue.max_bytes allows; \
            the token was not stored
            """
        case .requests(let limit):
            "\(limit) requests wait for the database, as many as store.queue.max_requests allows; this one was refused at once"
        case .stalled(let limit):
            """
            a write to the disk has taken longer than the \(limit) that store.queue.max_wait allows; \
            tokens are refused until it has ended
            """
        case .unanswered(let limit): "the store has not answered within \(limit)"
        }
    }
}

/// A limit of the settings that a store has reached.
package enum StoreLimit: Hashable, Sendable, CustomStringConvertible {
    case tokens(Int)
    case bytes(Int)

    package var description: String {
        switch self {
        case .tokens(let limit):
            "the store holds \(limit) tokens, as many as store.max_tokens allows; new ids are refused, known ones are not"
        case .bytes(let limit):
            "the store takes \(limit) bytes, as many as store.max_bytes allows; new ids are refused, known ones are not"
        }
    }
}
