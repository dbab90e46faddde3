/// How often a measured value was at most so much, as Prometheus counts it
/// (prometheus.io/docs/concepts/metric_types, "Histogram").
///
/// Written by one thread, read by any. A reading in the middle of a write may miss it in the sum and have it in a bucket.
package final class Histogram: Sendable {
    /// The largest value of each bucket, ascending; one bucket more takes what is above.
    package let bounds: [UInt64]
    /// What a value is to be multiplied with to be shown in its unit, for example 1e-9 for nanoseconds.
    package let scale: Double
    private let buckets: [Bucket]
    private let sum = Counter()

    /// A class, for a counter cannot lie in an array.
    private final class Bucket: Sendable {
        let count = Counter()
    }

    package init(bounds: [UInt64], scale: Double = 1) {
        self.bounds = bounds
        self.scale = scale
        buckets = (0...bounds.count).map { _ in Bucket() }
    }

    /// Nanoseconds from 10 µs to 10 s, three buckets to a power of ten.
    package static func latency() -> Histogram {
        var bounds: [UInt64] = []
        var power: UInt64 = 10_000
        while power < 10_000_000_000 {
            bounds += [power, power * 5 / 2, power * 5]
            power *= 10
        }
        return Histogram(bounds: bounds + [power], scale: 1e-9)
    }

    /// Numbers from 1 to 4,096, a bucket for each power of two.
    package static func sizes() -> Histogram {
        Histogram(bounds: (0...12).map { 1 << $0 })
    }

    /// Counts a value, several times if it was that of several things; on the thread that the histogram belongs to.
    package func add(_ value: UInt64, count: UInt64 = 1) {
        var index = 0
        while index < bounds.count && value > bounds[index] { index += 1 }
        buckets[index].count.add(count)
        sum.add(value &* count)
    }

    /// What was counted, to be added up with others and shown.
    package struct Reading: Sendable {
        package private(set) var bounds: [UInt64]
        package private(set) var scale: Double
        /// For each bound and what is above, not yet cumulative.
        package private(set) var counts: [UInt64]
        package private(set) var sum: UInt64

        /// A value in the unit in which it is shown, without the digits that a multiplication by a power of ten leaves:
        /// 25_000 * 1e-9 is no 2.5000000000000001e-05.
        package func inUnit(_ value: UInt64) -> Double {
            let digits = 1e9
            return (Double(value) * scale * digits).rounded() / digits
        }

        /// Adds another one of the same bounds.
        package static func + (first: Reading, second: Reading) -> Reading {
            precondition(first.bounds == second.bounds, "only histograms of the same bounds add up")
            var result = first
            for index in result.counts.indices { result.counts[index] &+= second.counts[index] }
            // Nanoseconds of many requests at once: a sum begins anew after weeks of full load, as those of the loops do.
            result.sum &+= second.sum
            return result
        }
    }

    /// What was counted so far.
    package var reading: Reading {
        Reading(bounds: bounds, scale: scale, counts: buckets.map { $0.count.value }, sum: sum.value)
    }
}
