import Glibc
import Synchronization

/// The result of a read.
package enum Fetched: Sendable {
    /// Nothing is stored under the id.
    case nothing
    /// The token info, when it was written, the time from which on it must no longer be returned (`Int64.max` if it does not
    /// expire), both in seconds since 1970, and its version.
    case found([UInt8], writtenAt: Int64, until: Int64, version: TokenVersion)
    /// The token info of a token that has expired and could not be refreshed, its version, and what the client may do; not to be
    /// kept. Only from a store that refreshes tokens.
    case unrefreshed([UInt8], version: TokenVersion, RefreshAdvice)
    /// The token info is longer than the limit, and was not read.
    case longer
}

/// What a client whose token has expired can do; the raw value is that of the header `Token-Refresh`.
package enum RefreshAdvice: String, Sendable {
    /// The token may be refreshed soon.
    case later
    /// Only a new login helps.
    case login
}

/// One thread's access to the store.
///
/// Belongs to that thread.
///
/// Every change has a completion, which is called once, on this thread; with success only when the change survives a
/// power cut. It is called after `flush` at the earliest. Only an error that occurs before anything is written, such as
/// a full queue, is reported before the method returns. A change that nobody waits for any longer may be dropped before
/// it is written; its completion is then not called.
package protocol StoreHandle: AnyObject {
    /// How long a client waits for an outcome before it is told that its request has failed; nil for a store that ends
    /// every wait by itself.
    var timeLimit: Duration? { get }

    /// The time with which the store dates its writes, in seconds since 1970: that of a `StoreClock`, except in stores
    /// of tests.
    var unixTime: Int64 { get }

    /// A descriptor that is readable while the handle has something to do on its thread, such as taking an answer from
    /// a database; the thread watches it, and calls `proceed`. Nil for a store that returns all outcomes through
    /// `deliver`.
    ///
    /// It stays the same, and open, for the handle's life.
    var descriptor: Int32? { get }

    /// Does the work that `descriptor` announces, without waiting; completions are called before it returns.
    func proceed()

    /// Reads the token info of an id, now or later.
    ///
    /// An outcome that is known at once is returned, so that it costs no allocation for a completion.
    ///
    /// - Parameters:
    ///   - id: The unique id, any bytes.
    ///   - limit: Bytes that the token info may have; a little more or less where rows are sealed.
    ///   - session: A session that must exist in the state of the store from which the token is read; otherwise the error
    ///     is `sessionEnded`. Nil for none.
    ///   - makeCompletion: Makes the completion of a read whose outcome comes later; called only then, once, before this
    ///     returns. The completion is called once, on this thread, after this has returned, or not at all if nobody waits
    ///     for it any longer.
    /// - Returns: Nil if the outcome comes later.
    func fetch(
        _ id: [UInt8], upTo limit: Int, if session: SessionKey?, orLater makeCompletion: () -> Completion<Fetched>
    ) throws(StoreError) -> Fetched?

    /// Stores a token info under an id, replacing what was there.
    ///
    /// - Parameters:
    ///   - tokenInfo: Any bytes.
    ///   - id: The unique id.
    ///   - writtenAt: When it was written, in seconds since 1970; nil for now.
    ///   - condition: What must hold; otherwise the error is `preconditionFailed`, `sessionEnded` or `newer`.
    ///   - completion: Takes the version that the token has now.
    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], writtenAt: Int64?, if condition: WriteCondition,
        completion: Completion<TokenVersion>
    )

    /// Removes the token of an id.
    ///
    /// - Parameters:
    ///   - id: The unique id.
    ///   - condition: As for `store`.
    ///   - completion: Takes whether there was a token.
    func remove(
        _ id: [UInt8], if condition: WriteCondition, completion: Completion<Bool>
    )

    // MARK: - Sessions of users

    /// The key of a session.
    ///
    /// - Parameter secret: What the client shows.
    func sessionKey(of secret: Span<UInt8>) throws(StoreError) -> SessionKey

    /// Looks for a session, now or later, as `fetch` does for a token.
    ///
    /// - Returns: Nil if the outcome comes later.
    func findSession(
        _ key: SessionKey, orLater makeCompletion: () -> Completion<FoundSession>
    ) throws(StoreError) -> FoundSession?

    /// Notes that a session was used, so that its idle time begins again.
    ///
    /// The outcome is not reported. A use may be lost in a crash, or when too many writes are waiting.
    ///
    /// - Parameter unixTime: In seconds since 1970.
    func noteUse(of key: SessionKey, at unixTime: Int64)

    /// Stores a session.
    ///
    /// - Parameters:
    ///   - session: A new one.
    ///   - key: Its key.
    ///   - perUser: How many sessions the user may have, including this one: at least 1. The oldest ones beyond that are ended.
    ///   - completion: Takes how many were ended.
    func createSession(_ session: UserSession, _ key: SessionKey, perUser: Int, completion: Completion<Int>)

    /// Ends a session.
    ///
    /// - Parameter completion: Takes what was ended; nil if there was no such session.
    func endSession(id: SessionID, completion: Completion<EndedSession?>)

    /// Ends all sessions of a user.
    ///
    /// - Parameter completion: Takes how many there were.
    func endSessions(of user: [UInt8], completion: Completion<Int>)

    /// Reads the sessions of a user that have not expired, the oldest first.
    ///
    /// - Parameter completion: Called once, on this thread, maybe before this returns.
    func listSessions(of user: [UInt8], completion: Completion<[UserSession]>)

    /// Erases a user: its token and its sessions.
    ///
    /// The user is not brought back by a write that was handed over earlier, as far as the servers' clocks agree, or
    /// that depends on a session that this ends. A restore of an older backup erases the user again, except for what
    /// was written after the erasure.
    ///
    /// - Parameters:
    ///   - user: The user, which is the unique id of the user's token.
    ///   - completion: Called when the rows are erased as far as the database can. After an error, the user must be
    ///     erased again.
    func erase(_ user: [UInt8], completion: Completion<Erasure>)

    /// Hands over the changes gathered since the last call, to be made durable together. Call it before waiting for
    /// anything else: until then no thread works on them.
    func flush()
}

extension StoreHandle {
    package var unixTime: Int64 { Int64(time(nil)) }

    package var descriptor: Int32? { nil }

    package func proceed() {}

    /// Stores a token info that is written now.
    package func store(
        _ tokenInfo: [UInt8], under id: [UInt8], if condition: WriteCondition,
        completion: Completion<TokenVersion>
    ) {
        store(tokenInfo, under: id, writtenAt: nil, if: condition, completion: completion)
    }
}

/// Takes the outcome of a request to a store.
///
/// Belongs to the thread that made the request.
package struct Completion<Value> {
    package let take: (Result<Value, StoreError>) -> Void
    private let waiter: (any OutcomeWaiter)?

    /// - Parameters:
    ///   - waiter: Says whether the caller still waits for the outcome; nil if it always does.
    ///   - take: Takes the outcome.
    package init(for waiter: (any OutcomeWaiter)? = nil, _ take: @escaping (Result<Value, StoreError>) -> Void) {
        (self.waiter, self.take) = (waiter, take)
    }

    /// Whether the caller still waits for the outcome.
    ///
    /// If not, the operation may be skipped, and `take` need not be called.
    package var isAwaited: Bool { waiter?.isWaiting ?? true }

    /// Says the same on any thread; nil if the caller always waits.
    package var shared: SharedWaiter? { waiter?.shared }

    /// A completion for outcomes of another kind, which are converted for this one.
    package func taking<Other>(_ change: @escaping (Other) -> Value) -> Completion<Other> {
        Completion<Other>(for: waiter) { [take] in take($0.map(change)) }
    }

    package func callAsFunction(_ outcome: Result<Value, StoreError>) { take(outcome) }
}

/// Waits for the outcome of a request to a store, and may stop waiting, like a client that disconnects.
package protocol OutcomeWaiter: AnyObject {
    var isWaiting: Bool { get }
    /// Says the same on any thread; nil if it always waits.
    var shared: SharedWaiter? { get }
}

/// Says on any thread whether somebody still waits for an outcome.
package final class SharedWaiter: OutcomeWaiter, Sendable {
    private let hasStopped = Atomic(false)

    package init() {}

    package var isWaiting: Bool { !hasStopped.load(ordering: .relaxed) }
    package var shared: SharedWaiter? { self }

    package func stop() { hasStopped.store(true, ordering: .relaxed) }
}
