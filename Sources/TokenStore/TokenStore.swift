/// Where token infos live, by unique id.
///
/// A token that `store` has reported as stored is what every later `fetch` gives, in every handle and after a crash; a
/// write that fails leaves the previous value in place. `StoreConformance` in Tests/StoreConformance says all that with
/// examples, and the tests of each store run it.
///
/// What only some stores can do is nil for the others; see `StoreCapability`.
///
/// Any thread.
package protocol TokenStore: Sendable {
    var software: StoreSoftware { get }

    /// The store in the log line of the server's start, for example `SQLite 3.40.1 in /var/lib/token-cache, sealed`.
    var summary: String { get }

    /// Why tokens cannot be stored or read at the moment; nil when they can.
    ///
    /// The server is not ready meanwhile. Nil again soon after the cause has gone, without any request.
    var fault: StoreError? { get }

    /// What the store has counted; takes a few system calls.
    var metrics: StoreMetrics { get }

    /// For operators' requests.
    var administrator: any StoreAdministrator { get }

    var preloader: (any StorePreloader)? { get }

    /// Whether every change to the tokens passes through this process, so that an observer learns of each.
    ///
    /// Without that, answers to clients are not cached.
    var seesAllWrites: Bool { get }

    /// Reports every change to an observer from now on.
    ///
    /// To be called once at most, before the first handle is made and before anything is written.
    func report(writesTo observer: any WriteObserver)

    /// Opens a handle for one thread.
    ///
    /// - Parameter deliver: Runs a closure on the handle's thread, soon; called from any thread. Stores that finish
    ///   their work elsewhere bring the outcome back with it, one call for many writes.
    func makeHandle(
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(StoreError) -> any StoreHandle

    /// Puts another retention into force: tokens that it has expired are no longer fetched.
    func change(_ retention: Retention) async throws(StoreError)

    /// Finishes the writes that were handed over, and closes the store. Blocks the calling thread until then. Handles
    /// must not be used afterwards.
    func close()
}

/// What a read has found.
package enum Fetched: Sendable {
    /// Nothing is stored under the id.
    case nothing
    /// The token info, and when it expires: from then on, in seconds since 1970, it must not be given any more. `Int64.max`
    /// if it does not expire.
    case found([UInt8], until: Int64)
    /// The token info is longer than was asked for, and was not read.
    case longer
}

/// One thread's way to the store.
///
/// Belongs to that thread.
package protocol StoreHandle: AnyObject {
    /// Takes the outcome of a read that is not known at once.
    typealias FetchCompletion = (Result<Fetched, StoreError>) -> Void

    /// How long a client waits for an outcome before it is told that its request has failed; nil for a store that gives every
    /// outcome by itself, as soon as it is known.
    var timeLimit: Duration? { get }

    /// Reads the token info of an id, now or later.
    ///
    /// An outcome that is known at once is returned, so that it costs no allocation for a completion.
    ///
    /// - Parameters:
    ///   - id: The unique id, any bytes.
    ///   - limit: Bytes that the token info may have; a little more or less where rows are sealed.
    ///   - makeCompletion: Makes the completion that takes an outcome which comes later. Called before this returns, once, and
    ///     only in that case; the completion is called once, on this thread, after this has returned.
    /// - Returns: Nil if the outcome comes later.
    func fetch(
        _ id: [UInt8], upTo limit: Int, orLater makeCompletion: () -> FetchCompletion
    ) throws(StoreError) -> Fetched?

    /// Stores a token info under an id, replacing what was there.
    ///
    /// - Parameter completion: Called once, on this thread: with success when the token would survive a power cut. After
    ///   `flush` at the earliest, except for an error that comes before anything is written, such as a full queue: then it is
    ///   called before this returns.
    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], completion: @escaping (Result<Void, StoreError>) -> Void
    )

    /// Hands over the writes gathered since the last call, to be made durable together. Call it before waiting for
    /// anything else: until then no thread works on them.
    func flush()
}
