#if PostgreSQL
import Synchronization
import System
import TokenStore

/// Gives each write of a token its version.
///
/// A version has the microseconds since 1970 in its upper 54 bits, which suffice until the year 2255, and ten random bits of
/// this process in the lower ones, so that versions of several servers hardly ever collide. No version is given twice, and each is
/// later than every version that this process has read, so that a server whose clock is behind can replace what it has read. Such
/// a clock is known as a hybrid logical clock (Kulkarni and others, "Logical Physical Clocks", 2014).
///
/// Any thread.
final class VersionClock: Sendable {
    private let last: Atomic<Int64>
    private let process: Int64
    private let now: @Sendable () -> Int64

    static let processBits: Int64 = 10

    /// - Parameters:
    ///   - process: The lower bits.
    ///   - now: The time in microseconds since 1970.
    init(process: Int64, now: @escaping @Sendable () -> Int64 = UTCTime.microseconds) {
        last = Atomic(0)
        self.process = process & (1 << Self.processBits - 1)
        self.now = now
    }

    /// A clock for this process.
    convenience init() {
        self.init(process: .random(in: 0..<1 << Self.processBits))
    }

    func next() -> TokenVersion {
        while true {
            let before = last.load(ordering: .relaxed)
            // At least one microsecond after the last version that was given or read.
            let microsecond = max(now(), before >> Self.processBits + 1)
            let version = microsecond << Self.processBits | process
            if last.compareExchange(expected: before, desired: version, ordering: .relaxed).exchanged {
                return TokenVersion(rawValue: version)
            }
        }
    }

    /// Makes all further versions later than one that was read.
    ///
    /// One that is more than a year ahead is ignored, as it would use up the numbers.
    func note(_ version: TokenVersion) {
        let limit = (now() + 366 * 86_400_000_000) << Self.processBits
        if version.rawValue <= limit { last.max(version.rawValue, ordering: .relaxed) }
    }
}
#endif
