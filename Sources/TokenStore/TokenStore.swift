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
    /// Without that, neither answers to clients nor sessions are kept in memory.
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

    /// Finishes the writes that were handed over, and closes the store. Blocks the calling thread until then, while the threads
    /// of the handles must go on. Handles must not be used afterwards.
    func close()
}
