/// Writes Prometheus' text format (prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4), or OpenMetrics 1.0
/// (prometheus.io/docs/specs/om/open_metrics_spec), which also has exemplars and says since when counters count.
package struct MetricsText: Sendable {
    package enum Format: Sendable {
        case prometheus, openMetrics

        package var mediaType: String {
            switch self {
            case .prometheus: "text/plain; version=0.0.4; charset=utf-8"
            case .openMetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8"
            }
        }
    }

    package private(set) var text = ""
    private let format: Format
    /// When all counters and histograms were 0, in seconds since 1970.
    private let creationTime: Double
    /// Of the current family.
    private var kind = Kind.gauge
    private static let counterSuffix = "_total"

    package init(_ format: Format = .prometheus, countingSince creationTime: Double = 0) {
        self.format = format
        self.creationTime = creationTime
    }

    package enum Kind: String {
        case counter, gauge, histogram
    }

    /// Labels, in the order in which they are written.
    package typealias Labels = KeyValuePairs<String, String>

    /// Begins a metric family; add its samples next.
    ///
    /// - Parameters:
    ///   - name: Ends in the unit, or in `_total` for a counter (prometheus.io/docs/practices/naming).
    ///   - kind: The type of the metric.
    ///   - help: A one-sentence description.
    package mutating func begin(_ name: String, _ kind: Kind, _ help: String) {
        precondition(
            name.hasSuffix(Self.counterSuffix) == (kind == .counter), "counters, and nothing else, end in _total")
        self.kind = kind
        // In OpenMetrics, the family of a counter has no suffix, only its samples have.
        let isShortened = format == .openMetrics && kind == .counter
        let family = isShortened ? String(name.dropLast(Self.counterSuffix.count)) : name
        text += "# HELP \(family) \(escaped(help))\n# TYPE \(family) \(kind.rawValue)\n"
    }

    /// Adds a sample to the current family.
    package mutating func add(_ name: String, _ labels: Labels = [:], _ value: UInt64) {
        sample(name, labels, "\(value)")
    }

    package mutating func add(_ name: String, _ labels: Labels = [:], _ value: Double) {
        sample(name, labels, "\(value)")
    }

    private mutating func sample(_ name: String, _ labels: Labels, _ value: String) {
        line(name, labels, value)
        if kind == .counter { creation(String(name.dropLast(Self.counterSuffix.count)), labels) }
    }

    /// Writes a family with a single sample.
    package mutating func single(_ name: String, _ kind: Kind, _ help: String, _ value: UInt64) {
        begin(name, kind, help)
        add(name, [:], value)
    }

    package mutating func single(_ name: String, _ kind: Kind, _ help: String, _ value: Double) {
        begin(name, kind, help)
        add(name, [:], value)
    }

    /// Writes a family with a single histogram.
    package mutating func histogram(_ name: String, _ help: String, _ reading: Histogram.Reading) {
        begin(name, .histogram, help)
        addHistogram(name, [], reading)
    }

    /// Adds the samples of one histogram to the current family.
    ///
    /// - Parameter labels: Labels of all samples; those of buckets also have `le`.
    package mutating func addHistogram(
        _ name: String, _ labels: [(key: String, value: String)], _ reading: Histogram.Reading
    ) {
        var count: UInt64 = 0
        for (index, bound) in reading.bounds.enumerated() {
            count += reading.counts[index]
            bucket(name, labels, "\(reading.inUnit(bound))", count, reading, index)
        }
        count += reading.counts[reading.bounds.count]
        bucket(name, labels, "+Inf", count, reading, reading.bounds.count)
        line("\(name)_sum", labels, "\(Double(reading.sum) * reading.scale)")
        line("\(name)_count", labels, "\(count)")
        creation(name, labels)
    }

    private mutating func bucket(
        _ name: String, _ labels: [(key: String, value: String)], _ bound: String, _ count: UInt64,
        _ reading: Histogram.Reading, _ index: Int
    ) {
        var exemplar = ""
        if format == .openMetrics, let found = reading.exemplars[index] {
            exemplar = " # {\(Self.text(found.labels))} \(reading.inUnit(found.value)) \(found.time)"
        }
        line("\(name)_bucket", labels + [("le", bound)], "\(count)\(exemplar)")
    }

    /// Says since when the samples with these labels count.
    private mutating func creation(_ name: String, _ labels: some Collection<(key: String, value: String)>) {
        if format == .openMetrics { line("\(name)_created", labels, "\(creationTime)") }
    }

    /// Ends the text; nothing may follow.
    package mutating func end() {
        if format == .openMetrics { text += "# EOF\n" }
    }

    private mutating func line(_ name: String, _ labels: some Collection<(key: String, value: String)>, _ value: String)
    {
        text += name
        if !labels.isEmpty { text += "{\(Self.text(labels))}" }
        text += " \(value)\n"
    }

    private static func text(_ labels: some Collection<(key: String, value: String)>) -> String {
        labels.map { "\($0.key)=\"\(escaped($0.value))\"" }.joined(separator: ",")
    }

    /// A help text; OpenMetrics escapes quotation marks in it too.
    private func escaped(_ help: String) -> String {
        let text = help.replacing("\\", with: "\\\\").replacing("\n", with: "\\n")
        return format == .openMetrics ? text.replacing("\"", with: "\\\"") : text
    }

    private static func escaped(_ value: String) -> String {
        guard value.contains(where: { "\\\"\n".contains($0) }) else { return value }
        return value.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"").replacing("\n", with: "\\n")
    }
}
