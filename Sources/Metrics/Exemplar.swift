/// One of the measured values of a histogram's bucket, with what identifies the request that it was measured for (OpenMetrics
/// 1.0, section "Exemplars").
package struct Exemplar: Sendable {
    package let labels: [(key: String, value: String)]
    /// In the unit in which the histogram measures.
    package let value: UInt64
    /// Seconds since 1970.
    package let time: Double
    /// How many characters the names and values of all labels may have together, by the standard.
    private static let limit = 128

    /// Nil without labels, and if they are longer than the standard allows.
    package init?(_ labels: [(key: String, value: String)], value: UInt64, time: Double) {
        let length = labels.reduce(0) { $0 + $1.key.unicodeScalars.count + $1.value.unicodeScalars.count }
        guard 1...Self.limit ~= length else { return nil }
        self.labels = labels
        self.value = value
        self.time = time
    }
}
