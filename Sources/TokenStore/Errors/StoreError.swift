/// A failed read, write or request of an operator; the store itself continues.
///
/// It gives the cause, whether a retry may help, and a text for operators. Errors of a particular store's library are
/// in a `StoreFault`.
package enum StoreError: Error, Hashable, CustomStringConvertible {
    case read(StoreFault)
    case write(StoreFault)
    /// The store's files or its server are missing; the store continues by itself when they are back.
    case unavailable(StoreFault)
    /// The row cannot be opened; other rows can.
    case sealing(SealingError)
    /// A limit of the store allows no new id.
    case full(StoreLimit)
    /// A token that was written later is stored under the id, and had to be kept.
    case newer
    /// The condition of the write does not hold; with the version of the stored token, nil if there is none.
    case preconditionFailed(current: TokenVersion?)
    /// The session that the write depends on no longer exists.
    case sessionEnded
    /// The key that the row was sealed with is being retired, or the ring was changed.
    case staleKey
    /// The store could not be opened again after a fault.
    case unusable(StoreOpenError)
    /// The key ring could not be changed.
    case keyRing(KeyRingError)
    /// The request does not fit the state of the store; the text says why and what to do.
    case refused(String)
    /// Too many writes wait already; this one was not begun.
    case overloaded(StoreOverload)
    /// The store is being closed.
    case closed

    /// Kinds of failures that require different actions.
    package enum Cause: String, CaseIterable, Sendable {
        /// No room on the disk.
        case diskFull = "disk_full"
        /// A limit of the settings.
        case limit
        /// The row or its key, see `SealingError`.
        case sealing
        /// The files were removed, truncated or replaced while they were open. Only a restart helps, so the server
        /// ends.
        case vanished
        /// Any other error of the disk or the database.
        case database
        /// Too many writes were waiting already.
        case overloaded
        /// The request could not be carried out at that moment.
        case refused
    }

    package var cause: Cause {
        switch self {
        case .read(let fault), .write(let fault), .unavailable(let fault): fault.cause
        case .full: .limit
        case .sealing, .keyRing: .sealing
        case .unusable(let error): error.cause
        case .overloaded: .overloaded
        case .newer, .preconditionFailed, .sessionEnded, .staleKey, .refused, .closed: .refused
        }
    }

    /// Whether the same request may succeed later without intervention.
    package var mayRetry: Bool {
        switch self {
        case .read(let fault), .write(let fault), .unavailable(let fault): fault.mayRetry
        case .staleKey, .overloaded: true
        case .full, .sealing, .newer, .preconditionFailed, .sessionEnded, .unusable, .keyRing, .refused, .closed: false
        }
    }

    /// Whether the store has reported the state that leads to this error as a `StoreEvent`.
    package var isReportedByStore: Bool {
        switch self {
        case .write(let fault): !fault.isOfOneToken
        case .full, .unavailable, .unusable, .overloaded(.unanswered), .sealing(.refused): true
        case .read, .sealing, .staleKey, .newer, .preconditionFailed, .sessionEnded, .keyRing, .refused, .overloaded,
            .closed:
            false
        }
    }

    package var description: String {
        switch self {
        case .read(let fault): "reading failed: \(fault)"
        case .write(let fault): "writing failed: \(fault)"
        case .unavailable(let fault): "\(fault)"
        case .sealing(let error): "\(error)"
        case .full(let limit): "\(limit)"
        case .staleKey: "the store or its keys were changed meanwhile; try again"
        case .preconditionFailed: "what is stored under this id was changed meanwhile"
        case .sessionEnded: "the session has ended"
        case .newer: "a newer token is stored under this id"
        case .unusable(let error): "\(error)"
        case .keyRing(let error): "\(error)"
        case .refused(let reason): reason
        case .overloaded(let overload): "\(overload)"
        case .closed: "the store is closed"
        }
    }
}

/// An error of a store's library, disk or server, in the terms that all stores share.
package struct StoreFault: Hashable, Sendable, CustomStringConvertible {
    package let cause: StoreError.Cause
    /// Whether the operation may succeed later without intervention: the disk is full, or something is locked.
    package let mayRetry: Bool
    /// Whether the error concerns one token only, so that others can be stored.
    package let isOfOneToken: Bool
    /// Text for operators; contains no part of a token.
    package let description: String

    package init(
        _ description: String, cause: StoreError.Cause = .database, mayRetry: Bool = false, isOfOneToken: Bool = false
    ) {
        self.description = description
        self.cause = cause
        self.mayRetry = mayRetry
        self.isOfOneToken = isOfOneToken
    }
}

/// Why a request is refused at once, or given up.
package enum StoreOverload: Hashable, Sendable, CustomStringConvertible {
    /// Waiting requests and answers take all of `limits.buffers`.
    case buffers
    /// Waiting rows take all the memory that they may: half of `limits.buffers`.
    case queue(bytes: Int)
    /// As many requests as allowed are waiting for the database already.
    case requests(Int)
    /// One write to the disk has taken longer than `store.timeout`.
    case stalled(limit: Duration)
    /// The store has not given an outcome within its time limit.
    case unanswered(limit: Duration)

    package var description: String {
        switch self {
        case .buffers:
            "requests and answers under way take all the memory that limits.buffers allows; this one was refused"
        case .queue(let bytes):
            """
            tokens that wait to be written take the \(bytes) bytes that they may, half of limits.buffers; \
            the token was not stored
            """
        case .requests(let limit):
            "\(limit) requests wait for the database, as many as are allowed; this one was refused at once"
        case .stalled(let limit):
            """
            a write to the disk has taken longer than the \(limit) that store.timeout allows; \
            tokens are refused until it has ended
            """
        case .unanswered(let limit): "the store has not answered within \(limit)"
        }
    }
}

/// The size that a store may have by its settings, and has reached.
package struct StoreLimit: Hashable, Sendable, CustomStringConvertible {
    let bytes: Int

    package init(bytes: Int) {
        self.bytes = bytes
    }

    package var description: String {
        "the store takes \(bytes) bytes, as many as store.max_bytes allows; new ids and sessions are refused, known ids are not"
    }
}
