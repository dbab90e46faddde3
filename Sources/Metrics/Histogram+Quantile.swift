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
