/// Where token infos live, by unique id.
///
/// An implementer must pass `TokenStoreTests`: what `store` has answered for, every later `fetch` sees, in every session
/// and after a crash; what fails leaves the previous value in place.
package protocol TokenStore: Sendable {
    /// What the start log calls it, for example `SQLite 3.40.1 in /var/lib/token-cache`.
    var summary: String { get }

    /// Opens a session for one thread.
    ///
    /// - Parameter deliver: Runs a closure on the session's thread, soon; called from any thread. Stores that finish
    ///   their work elsewhere bring the outcome back with it, one call for many writes.
    func makeSession(
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(StoreError) -> any TokenSession

    /// Finishes what was handed over and closes the store. Blocks the calling thread until that is done. Sessions must
    /// not be used afterwards.
    func close()
}

/// What a read has found.
package enum Fetched: Sendable {
    /// Nothing is stored under the id.
    case nothing
    /// The token info was appended; what is made of it may be remembered, if there is a permit.
    case found(CachePermit?)
    /// The token info is longer than was asked for, and was not read.
    case longer
}

/// One thread's way to the store.
///
/// Belongs to that thread.
package protocol TokenSession: AnyObject {
    /// Reads the token info of an id.
    ///
    /// - Parameters:
    ///   - id: The unique id, any bytes.
    ///   - limit: Bytes that the token info may have; a little more or less where rows are sealed.
    ///   - tokenInfo: The token info is appended to it.
    func fetch(
        _ id: [UInt8], upTo limit: Int, appendingTo tokenInfo: inout [UInt8]
    ) throws(StoreError) -> Fetched

    /// Appends what `remember` was given for an id, if that is still the answer; never waits.
    ///
    /// - Returns: False when it is not known: fetch it.
    func recall(_ id: Span<UInt8>, appendingTo answer: inout [UInt8]) -> Bool

    /// Keeps what was made of a token info, to be given by `recall` until the token changes.
    func remember(_ answer: [UInt8], under id: [UInt8], _ permit: CachePermit)

    /// Stores a token info under an id, replacing what was there.
    ///
    /// - Parameter completion: Called once, on this thread: with success when the token would survive a power cut. After
    ///   `flush` at the earliest, but for an error that comes before anything is written, which it is told at once: when too
    ///   much waits to be written already, for instance.
    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], completion: @escaping (Result<Void, StoreError>) -> Void
    )

    /// Hands over the writes gathered since the last call, to be made durable together. Call it before waiting for
    /// anything else: until then nobody works on them.
    func flush()
}
