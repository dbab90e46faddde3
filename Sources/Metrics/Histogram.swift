/// A histogram of measured values, as Prometheus defines it (prometheus.io/docs/concepts/metric_types, "Histogram").
///
/// One thread writes, any thread reads. A reading during a write may have the value in a bucket but not yet in the sum.
package final class Histogram: Sendable {
    /// The largest value of each bucket, ascending; a further bucket counts the values above the last bound.
    package let bounds: [UInt64]
    /// The factor that converts a value to the unit in which it is shown, for example 1e-9 for nanoseconds.
    let scale: Double
    private let buckets: [BoxedCounter]
    private let sum = Counter()

    package init(bounds: [UInt64], scale: Double = 1) {
        self.bounds = bounds
        self.scale = scale
        buckets = (0...bounds.count).map { _ in BoxedCounter() }
    }

    /// A histogram for durations in nanoseconds, from 10 µs to 10 s, with three buckets for each power of ten.
    package static func latency() -> Histogram {
        var bounds: [UInt64] = []
        var power: UInt64 = 10_000
        while power < 10_000_000_000 {
            bounds += [power, power * 5 / 2, power * 5]
            power *= 10
        }
        return Histogram(bounds: bounds + [power], scale: 1e-9)
    }

    /// A histogram for numbers from 1 to 4,096, with a bucket for each power of two.
    package static func sizes() -> Histogram {
        Histogram(bounds: (0...12).map { 1 << $0 })
    }

    /// Counts a value once or several times; call it only on the thread that owns the histogram.
    package func add(_ value: UInt64, count: UInt64 = 1) {
        var index = 0
        while index < bounds.count && value > bounds[index] { index += 1 }
        buckets[index].counter.add(count)
        sum.add(value &* count)
    }

    /// The counts of a histogram at one time, which can be added to those of others.
    package struct Reading: Sendable {
        let bounds: [UInt64]
        let scale: Double
        /// The number of values in each bucket, and at the end the number above the last bound; not cumulative.
        package private(set) var counts: [UInt64]
        package private(set) var sum: UInt64

        /// A value in the unit in which it is shown, rounded so that 25_000 * 1e-9 is 2.5e-05 and not
        /// 2.5000000000000001e-05.
        func inUnit(_ value: UInt64) -> Double {
            let digits = 1e9
            return (Double(value) * scale * digits).rounded() / digits
        }

        /// Adds two readings with the same bounds.
        package static func + (first: Reading, second: Reading) -> Reading {
            precondition(first.bounds == second.bounds, "only readings with the same bounds can be added")
            var result = first
            for index in result.counts.indices { result.counts[index] &+= second.counts[index] }
            // The sum of nanoseconds overflows after weeks of full load, and then starts from 0, as the loops' own sums do.
            result.sum &+= second.sum
            return result
        }
    }

    /// The current counts.
    package var reading: Reading {
        Reading(bounds: bounds, scale: scale, counts: buckets.map { $0.counter.value }, sum: sum.value)
    }
}

extension Histogram.Reading {
    /// The value that a share of the values measured since an earlier reading did not exceed, in the unit in which it is shown.
    ///
    /// Values count as evenly spread within their bucket, as in Prometheus' `histogram_quantile`. The last bucket has no upper
    /// bound, so values in it count as the last bound.
    ///
    /// - Parameters:
    ///   - share: From 0 to 1: 0.5 is the median.
    ///   - earlier: A reading of the same histogram.
    /// - Returns: Nil if nothing was measured in between.
    package func quantile(_ share: Double, since earlier: Histogram.Reading) -> Double? {
        precondition(bounds == earlier.bounds, "only readings with the same bounds can be compared")
        let total = counts.indices.reduce(0.0) { $0 + count(at: $1, since: earlier) }
        guard total > 0 else { return nil }
        var wanted = share * total
        for index in bounds.indices {
            let count = count(at: index, since: earlier)
            if count > 0 && wanted <= count {
                let (low, high) = (index == 0 ? 0 : Double(bounds[index - 1]), Double(bounds[index]))
                return (low + (high - low) * wanted / count) * scale
            }
            wanted -= count
        }
        return bounds.last.map { Double($0) * scale }
    }

    /// How many values of a bucket came after an earlier reading.
    private func count(at index: Int, since earlier: Histogram.Reading) -> Double {
        // The loops' readings are not taken at the same instant, so that a sum may seem to have shrunk.
        counts[index] > earlier.counts[index] ? Double(counts[index] - earlier.counts[index]) : 0
    }
}
