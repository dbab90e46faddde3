package import HTTP
internal import Synchronization
package import System

/// Limits how often an address may fail: with credentials that nobody has, or in mode `open` with ids that have no token.
///
/// Only failures are counted and refused, never what succeeds: phones share addresses, and a limit by id would let anybody
/// lock out a user.
///
/// An IPv4 address is one address, also in its IPv6 form. Of an IPv6 address the first 64 bits count, as whoever has one
/// address has all of its network; and as providers give customers up to 48 bits, so many together may fail 16 times as
/// often as one address.
///
/// Takes at most 1.25 MiB, however many addresses fail. Any thread.
package final class FailureLimiter: Sendable {
    /// Totals since the start.
    package struct Counts: Hashable, Sendable {
        /// All failures that were noted, whatever their address.
        package var failures = 0
        /// Those beyond the rate.
        package var limited = 0
        /// Addresses and networks that were forgotten before their failures were made up for, as others needed their place.
        package var evictions = 0
    }

    private static let shardCount = 16
    /// With eight entries a set: 65,536 addresses in 1 MiB.
    private static let setsPerShard = 512
    /// With eight entries a set: 16,384 networks in 256 KiB.
    private static let networkSetsPerShard = 128
    private static let networkFactor: UInt64 = 16

    /// By the hash of the address; all addresses of an IPv6 network with 48 bits are in one shard, so that one lock is enough.
    private let shards: [Shard]
    private let hash: SipHash

    private final class Shard: Sendable {
        let state: Mutex<State>

        init(_ rate: FailureRate?) {
            state = Mutex(State(rates: rate.map(Rates.init)))
        }
    }

    private struct Rates {
        let address: FailureTable.Rate
        let network: FailureTable.Rate

        init(_ rate: FailureRate) {
            address = FailureTable.Rate(rate, times: 1)
            network = FailureTable.Rate(rate, times: FailureLimiter.networkFactor)
        }
    }

    private struct State {
        /// Nil without a limit.
        var rates: Rates?
        var addresses = FailureTable(setCount: FailureLimiter.setsPerShard)
        var networks = FailureTable(setCount: FailureLimiter.networkSetsPerShard)
        var failures = 0
        var limited = 0

        mutating func note(_ address: UInt64, _ network: UInt64?, at now: UInt64) -> UInt64? {
            failures += 1
            guard let rates else { return nil }
            // Only a failure that is within both rates counts, and only that takes a place in the tables: whoever changes
            // addresses within a network soon takes no more of them.
            var wait = addresses.wait(for: address, rates.address, at: now)
            if let network {
                let others = networks.wait(for: network, rates.network, at: now)
                wait = [wait, others].compactMap(\.self).max()
            }
            if wait == nil {
                addresses.count(address, rates.address, at: now)
                if let network { networks.count(network, rates.network, at: now) }
            } else {
                limited += 1
            }
            return wait
        }
    }

    /// - Parameter rate: Nil for no limit; failures are counted all the same.
    package convenience init(_ rate: FailureRate?) {
        self.init(rate, .random())
    }

    init(_ rate: FailureRate?, _ hash: SipHash) {
        shards = (0..<Self.shardCount).map { _ in Shard(rate) }
        self.hash = hash
    }

    /// Changes the rate; if it differs, all addresses begin anew.
    package func setRate(_ rate: FailureRate?) {
        let rates = rate.map(Rates.init)
        for shard in shards {
            shard.state.withLock { state in
                guard state.rates?.address != rates?.address else { return }
                state.rates = rates
                state.addresses.removeAll()
                state.networks.removeAll()
            }
        }
    }

    /// Notes a failure.
    ///
    /// - Parameters:
    ///   - address: The client's; nil for a client of a Unix socket, which is never limited.
    ///   - now: The present.
    /// - Returns: Nil if the failure is within the rate; otherwise how long the client should wait (Retry-After).
    package func noteFailure(from address: IPAddress?, at now: MonotonicTime) -> Duration? {
        // Kinds of keys have different second numbers, so that no address has the hash of a network.
        let (key, network, shard): (UInt64, UInt64?, Int)
        switch address {
        case .some(let address) where address.isIPv4:
            key = hash.hash(address.low, 4)
            (network, shard) = (nil, Self.shard(key))
        case .some(let address):
            key = hash.hash(address.high, 64)
            let networkKey = hash.hash(address.high >> 16, 48)
            (network, shard) = (networkKey, Self.shard(networkKey))
        case nil:
            shards[0].state.withLock { $0.failures += 1 }
            return nil
        }
        let wait = shards[shard].state.withLock { $0.note(key, network, at: now.nanoseconds) }
        return wait.map { .nanoseconds(Int64(clamping: $0)) }
    }

    /// The highest bits, as the tables use the lowest ones.
    private static func shard(_ key: UInt64) -> Int { Int(key >> 60) }

    // MARK: - Metrics

    /// The bytes of all tables.
    var byteCount: Int {
        shards.reduce(0) { sum, shard in
            sum + shard.state.withLock { $0.addresses.byteCount + $0.networks.byteCount }
        }
    }

    package var counts: Counts {
        var counts = Counts()
        for shard in shards {
            shard.state.withLock { state in
                counts.failures += state.failures
                counts.limited += state.limited
                counts.evictions += state.addresses.evictions + state.networks.evictions
            }
        }
        return counts
    }

    /// How many addresses and IPv6 networks with 48 bits would get 429 for another failure.
    ///
    /// Looks at all entries, some microseconds for each of the locks.
    package func limitedAddresses(at now: MonotonicTime) -> Int {
        var count = 0
        for shard in shards {
            count += shard.state.withLock { state in
                guard let rates = state.rates else { return 0 }
                return state.addresses.limitedCount(rates.address, at: now.nanoseconds)
                    + state.networks.limitedCount(rates.network, at: now.nanoseconds)
            }
        }
        return count
    }
}
