/// The clocks of a seed, in nanoseconds; they show the same second whatever the real time is.
struct VirtualClock {
    /// The monotonic clock.
    var now: UInt64 = 1_000_000_000_000
    /// What the wall clock shows beyond the monotonic one; a jump changes it.
    var wallOffset = 1_800_000_000_000_000_000
    /// The most that passes between two readings.
    var longestStep = 20_000

    var wall: Int { Int(now) + wallOffset }
    /// Seconds since 1970.
    var unixTime: Int64 { Int64(wall / 1_000_000_000) }
}

extension Int {
    /// Nanoseconds of so many seconds.
    static func seconds(_ count: Int) -> Int { count * 1_000_000_000 }
}

extension UInt64 {
    /// Nanoseconds of so many seconds.
    static func seconds(_ count: Int) -> UInt64 { UInt64(count) * 1_000_000_000 }
    /// Nanoseconds of so many milliseconds.
    static func milliseconds(_ count: Int) -> UInt64 { UInt64(count) * 1_000_000 }
}
