/// What has happened in a seed: as a number that tells two runs apart, and as lines if wanted.
struct Trace {
    /// Whether the seed that runs is the one of `--trace`.
    nonisolated(unsafe) static var isPrinted = false

    private(set) var hash: UInt64 = 0xcbf2_9ce4_8422_2325

    mutating func note(_ event: StaticString, _ subject: Int, _ number: Int) {
        mix(UInt64(event.utf8CodeUnitCount))
        mix(UInt64(truncatingIfNeeded: subject))
        mix(UInt64(truncatingIfNeeded: number))
    }

    private mutating func mix(_ number: UInt64) {
        hash = (hash ^ number) &* 0x0000_0100_0000_01b3
        hash ^= hash >> 29
    }
}
