/// Writes Prometheus' text format (prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4).
package struct MetricsText: Sendable {
    package private(set) var text = ""

    package static let mediaType = "text/plain; version=0.0.4; charset=utf-8"

    package init() {}

    package enum Kind: String {
        case counter, gauge, histogram
    }

    /// Labels in the order in which they are shown.
    package typealias Labels = KeyValuePairs<String, String>

    /// Begins a family; its samples follow.
    ///
    /// - Parameters:
    ///   - name: With its unit, and `_total` for a counter (prometheus.io/docs/practices/naming).
    ///   - kind: What its samples are.
    ///   - help: One sentence.
    package mutating func begin(_ name: String, _ kind: Kind, _ help: String) {
        text += "# HELP \(name) \(help)\n# TYPE \(name) \(kind.rawValue)\n"
    }

    /// Adds a sample of the family that was begun last.
    package mutating func add(_ name: String, _ labels: Labels = [:], _ value: UInt64) {
        line(name, labels, "\(value)")
    }

    package mutating func add(_ name: String, _ labels: Labels = [:], _ value: Double) {
        line(name, labels, "\(value)")
    }

    /// A family with a single sample.
    package mutating func single(_ name: String, _ kind: Kind, _ help: String, _ value: UInt64) {
        begin(name, kind, help)
        add(name, [:], value)
    }

    package mutating func single(_ name: String, _ kind: Kind, _ help: String, _ value: Double) {
        begin(name, kind, help)
        add(name, [:], value)
    }

    /// A whole histogram.
    package mutating func histogram(_ name: String, _ help: String, _ reading: Histogram.Reading) {
        begin(name, .histogram, help)
        addHistogram(name, [], reading)
    }

    /// The samples of one histogram of a family.
    ///
    /// - Parameter labels: Beside those of the buckets.
    package mutating func addHistogram(
        _ name: String, _ labels: [(key: String, value: String)], _ reading: Histogram.Reading
    ) {
        var count: UInt64 = 0
        for (index, bound) in reading.bounds.enumerated() {
            count += reading.counts[index]
            line("\(name)_bucket", labels + [("le", "\(reading.inUnit(bound))")], "\(count)")
        }
        count += reading.counts[reading.bounds.count]
        line("\(name)_bucket", labels + [("le", "+Inf")], "\(count)")
        line("\(name)_sum", labels, "\(Double(reading.sum) * reading.scale)")
        line("\(name)_count", labels, "\(count)")
    }

    private mutating func line(_ name: String, _ labels: some Collection<(key: String, value: String)>, _ value: String)
    {
        text += name
        if !labels.isEmpty {
            text += "{" + labels.map { "\($0.key)=\"\(Self.escaped($0.value))\"" }.joined(separator: ",") + "}"
        }
        text += " \(value)\n"
    }

    private static func escaped(_ value: String) -> String {
        guard value.contains(where: { "\\\"\n".contains($0) }) else { return value }
        return value.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"").replacing("\n", with: "\\n")
    }
}
