/// Stores token infos by unique id.
///
/// Once `store` has reported a token as stored, every later `fetch` returns it, in every handle and after a crash; a
/// write that fails leaves the previous value in place. `StoreConformance` in Tests/StoreConformance specifies all that
/// by examples, which the tests of each store run.
///
/// Capabilities that only some stores have are nil for the others; see `StoreCapability`.
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

    /// Starts to read the data that requests will need into memory, in the background; to be called once. A store on
    /// other machines does nothing.
    func preload()

    /// Whether every change to the tokens passes through this process, so that an observer learns of each.
    ///
    /// Otherwise neither answers to clients nor sessions are kept in memory.
    var seesAllWrites: Bool { get }

    /// Reports every change to an observer from now on.
    ///
    /// To be called once at most, before the first handle is made and before anything is written.
    func report(writesTo observer: any WriteObserver)

    /// Opens a handle for one thread.
    ///
    /// - Parameter deliver: Runs a closure on the handle's thread, soon, and then the handle's `flush`; called from any thread. Stores
    ///   that finish their work elsewhere return the outcomes through it, one call for many writes.
    func makeHandle(
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(StoreError) -> any StoreHandle

    /// Puts another retention into force soon, without waiting for a disk: tokens that have expired by it are no longer returned
    /// then.
    func change(_ retention: Retention)

    /// Finishes the writes that were handed over, and accepts no more. Blocks the calling thread meanwhile; the threads
    /// of the handles must keep running.
    func finishWrites()

    /// Closes the store after `finishWrites`. Handles must not be used afterwards.
    func close()
}

extension TokenStore {
    package func preload() {}
}

/// Learns of every change to a store's tokens and of the end of every session, so that caches drop them in time.
///
/// A store calls `willWrite` before it commits a change and `didWrite` when the change is committed or has failed,
/// before it reports the outcome. Between the two calls a read may find the former token or the new one. Tokens that expire are
/// not reported one by one, as a read says how long its token may be kept.
///
/// Called on any thread, also while clients read; must return soon. A class, because every group of writes copies the
/// reference, and one to an object is the cheapest to copy.
package protocol WriteObserver: AnyObject, Sendable {
    /// The tokens of these ids are about to be stored, replaced or removed.
    func willWrite(_ ids: [[UInt8]])

    /// The change that `willWrite` announced with the same ids is over, with or without success.
    func didWrite(_ ids: [[UInt8]])

    /// Tokens that expire by this time, in seconds since 1970, are about to be deleted, also if the clock is set back then.
    func willExpire(until unixTime: Int64)

    /// These sessions are about to end: they were revoked, replaced by newer ones or erased, or have expired.
    ///
    /// Called before the change can be read; a session that `StoreHandle.findSession` finds between the two calls must not
    /// be remembered.
    func willEnd(_ sessions: [SessionKey])

    /// The change that `willEnd` announced is over, with or without success.
    func didEnd(_ sessions: [SessionKey])

    /// Any token may have changed, or expire at another time, and any session may have ended: the retention was changed, the
    /// database was opened again, or sessions have ended whose keys could not be read.
    func didChangeEverything()
}

/// Where a write must be on disk before it is acknowledged, for stores whose database decides that.
package enum StoreDurability: String, Sendable, CaseIterable {
    /// It is on the disk of a second machine as well. A database that would confirm it earlier is not used.
    case synchronous
    /// It is on the disk of the machine that the database calls its primary.
    case local
}

/// A host of a store's database.
package struct DatabaseHost: Hashable, Sendable, CustomStringConvertible {
    /// A name, an address, or the folder of a Unix socket; empty for the database library's default.
    package let name: String
    /// The address to connect to; empty to look up the name.
    package let address: String
    /// Empty for the default.
    package let port: String

    package init(name: String, address: String, port: String) {
        (self.name, self.address, self.port) = (name, address, port)
    }

    package var description: String {
        let name = name.isEmpty ? (address.isEmpty ? "the default host" : address) : name
        return port.isEmpty ? name : "\(name.contains(":") ? "[\(name)]" : name):\(port)"
    }
}
