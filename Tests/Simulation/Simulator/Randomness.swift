import TestSupport

/// The choices of a seed; the same ones each time.
final class Randomness {
    private var generator: SeededGenerator

    init(seed: UInt64) {
        generator = SeededGenerator(seed: seed)
    }

    /// A number from 0 on, below a limit that is small beside 2^32.
    func below(_ limit: Int) -> Int {
        Int(((generator.next() >> 32) &* UInt64(limit)) >> 32)
    }

    func happens(oneIn count: Int) -> Bool { below(count) == 0 }

    func among<Value>(_ values: [Value]) -> Value { values[below(values.count)] }
}
