import Synchronization
package import System

/// Limits how often an address may fail (`access.failures`): with unknown credentials, or in mode `open` with ids that have no
/// token.
///
/// Each IPv4 address has a bucket, and each IPv6 network of 64 bits, because a client usually has a whole network. While
/// an address is beyond the rate, nothing that it sends is looked up: if correct guesses were still answered, guessing would not be
/// slowed down.
///
/// Takes at most 2 MiB, however many addresses fail. Any thread.
package final class FailureLimiter: Sendable {
    /// The generic cell rate algorithm (ITU-T I.371, annex A).
    ///
    /// Only one time is kept for an address, in nanoseconds: each failure moves it on by the rate's interval, and once it has passed
    /// the address may again fail as often as a new one.
    private struct Bucket: RecentEntry {
        let network: IPAddress
        let time: UInt64
    }

    private struct Buckets: ~Copyable {
        var rate: FailureRate?
        /// Addresses that have not failed for some time are forgotten if there are others.
        var recent = RecentEntries<Bucket>(limit: addressLimit)

        mutating func time(of network: IPAddress) -> UInt64 {
            recent.find(network.hashValue) { $0.network == network ? $0.time : nil } ?? 0
        }
    }

    /// The table has 32,768 slots of 40 bytes: 1.25 MiB, and half of that more for a moment while it grows.
    private static let addressLimit = 16_384

    private let buckets: Mutex<Buckets>

    /// - Parameter rate: Nil for no limit.
    package init(_ rate: FailureRate?) {
        buckets = Mutex(Buckets(rate: rate))
    }

    /// Changes the rate; if it differs, all addresses begin anew.
    package func setRate(_ rate: FailureRate?) {
        buckets.withLock { if $0.rate != rate { $0 = Buckets(rate: rate) } }
    }

    /// How long an address has to wait before its next request is served (Retry-After); nil if it need not wait.
    ///
    /// - Parameters:
    ///   - address: The client's; nil for a client of a Unix socket, which is never limited.
    ///   - now: The present.
    package func wait(for address: IPAddress?, at now: MonotonicTime) -> Duration? {
        guard let address else { return nil }
        return buckets.withLock { buckets in
            guard let rate = buckets.rate else { return nil }
            let free = now.nanoseconds + Nanoseconds(rate.interval).count * UInt64(rate.count - 1)
            let time = buckets.time(of: address.network)
            return time > free ? .nanoseconds(Int64(clamping: time - free)) : nil
        }
    }

    /// Counts a failure of an address.
    package func noteFailure(from address: IPAddress?, at now: MonotonicTime) {
        guard let network = address?.network else { return }
        buckets.withLock { buckets in
            guard let rate = buckets.rate else { return }
            let time = max(buckets.time(of: network), now.nanoseconds) + Nanoseconds(rate.interval).count
            buckets.recent.insert(under: network.hashValue, cost: 1) { Bucket(network: network, time: time) }
        }
    }

    /// How many addresses are remembered.
    var addressCount: Int { buckets.withLock { $0.recent.count } }
}

/// How many failures an address may have in which time, such as 30 per minute.
///
/// So many may come at once; after that one more is within the rate whenever `interval` has passed.
package struct FailureRate: Hashable, Sendable, CustomStringConvertible {
    package enum Period: String, Sendable, CaseIterable {
        case second = "s"
        case minute = "min"
        case hour = "h"

        var duration: Duration {
            switch self {
            case .second: .seconds(1)
            case .minute: .seconds(60)
            case .hour: .seconds(3_600)
            }
        }
    }

    /// At least 1.
    package let count: Int
    let period: Period

    /// The largest number; so many failures in a second are no guesses that a limit could slow down.
    private static let largestCount = 1_000_000

    /// Reads a rate, such as `30/min`, `1/s` or `100/h`; nil if the text is none.
    package init?(_ text: String) {
        let parts = text.split(separator: "/", omittingEmptySubsequences: false)
        guard parts.count == 2, parts[0].allSatisfy({ $0.isASCII && $0.isNumber }), let count = Int(parts[0]),
            (1...Self.largestCount).contains(count), let period = Period(rawValue: String(parts[1]))
        else { return nil }
        self.count = count
        self.period = period
    }

    /// The time after which one more failure is within the rate.
    package var interval: Duration { period.duration / count }

    package var description: String { "\(count)/\(period.rawValue)" }
}
