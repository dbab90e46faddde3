#if PostgreSQL
internal import CLinux
internal import Cryptography
internal import Glibc
internal import Synchronization
internal import TokenStore

/// Gives each write of a token its version.
///
/// A version is the microseconds since 1970 in the upper 54 bits, which are enough until the year 2255, and ten random bits of
/// this process in the lower ones, so that those of several servers hardly ever collide. It is never given twice, and later
/// than every version that this process has read, so that a server whose clock is behind does not write what counts as older.
/// Such a clock is known as a hybrid logical clock (Kulkarni and others, "Logical Physical Clocks", 2014).
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
    init(process: Int64, now: @escaping @Sendable () -> Int64 = VersionClock.systemTime) {
        last = Atomic(0)
        self.process = process & (1 << Self.processBits - 1)
        self.now = now
    }

    /// A clock for this process.
    convenience init() throws(CryptographyError) {
        let bytes = try RandomBytes.published(2)
        self.init(process: Int64(bytes[0]) << 8 | Int64(bytes[1]))
    }

    func next() -> TokenVersion {
        while true {
            let before = last.load(ordering: .relaxed)
            // The next microsecond after the last version, whoever gave it.
            let microsecond = max(now(), before >> Self.processBits + 1)
            let version = microsecond << Self.processBits | process
            if last.compareExchange(expected: before, desired: version, ordering: .relaxed).exchanged {
                return TokenVersion(rawValue: version)
            }
        }
    }

    /// Makes all further versions later than one that was seen.
    ///
    /// - Parameter version: As the database says; one of more than a year ahead is not followed, as it would use up the numbers.
    func note(_ version: TokenVersion) {
        let limit = (now() + 366 * 86_400_000_000) << Self.processBits
        if version.rawValue <= limit { last.max(version.rawValue, ordering: .relaxed) }
    }

    /// Microseconds since 1970.
    static let systemTime: @Sendable () -> Int64 = {
        var time = timespec()
        _ = unsafe clock_gettime(CLOCK_REALTIME, &time)
        return Int64(time.tv_sec) * 1_000_000 + Int64(time.tv_nsec) / 1_000
    }
}
#endif
