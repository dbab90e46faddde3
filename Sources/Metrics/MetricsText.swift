/// Writes Prometheus' text format (prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4).
///
/// The type of a family follows from its name: those of counters, and no others, end in `_total`. What is nil is not written.
package struct MetricsText: Sendable {
    package static let mediaType = "text/plain; version=0.0.4; charset=utf-8"

    package private(set) var text = ""
    /// The name of the current family.
    private var name = ""

    package init() {}

    /// Labels, in the order in which they are written.
    package typealias Labels = KeyValuePairs<String, String>

    /// Begins a metric family; add its samples next.
    ///
    /// - Parameters:
    ///   - name: Ends in the unit, or in `_total` for a counter (prometheus.io/docs/practices/naming).
    ///   - help: A one-sentence description.
    package mutating func begin(_ name: String, _ help: String) {
        begin(name, name.hasSuffix("_total") ? "counter" : "gauge", help)
    }

    private mutating func begin(_ name: String, _ kind: String, _ help: String) {
        self.name = name
        let escaped = help.replacing("\\", with: "\\\\").replacing("\n", with: "\\n")
        text += "# HELP \(name) \(escaped)\n# TYPE \(name) \(kind)\n"
    }

    /// Adds a sample to the current family.
    ///
    /// - Parameter value: A negative one, which a count may be for a moment, is written as 0.
    package mutating func add(_ labels: Labels, _ value: some BinaryInteger) {
        line("", labels, "\(max(0, value))")
    }

    /// Writes a family with a single sample.
    package mutating func single(_ name: String, _ help: String, _ value: (some BinaryInteger)?) {
        guard let value else { return }
        begin(name, help)
        add([:], value)
    }

    /// Writes 1 for true and 0 for false.
    package mutating func single(_ name: String, _ help: String, _ value: Bool?) {
        single(name, help, value.map { $0 ? 1 : 0 })
    }

    package mutating func single(_ name: String, _ help: String, _ value: Double?) {
        guard let value else { return }
        begin(name, help)
        line("", [:] as Labels, "\(value)")
    }

    /// Writes a family with a sample for each value of a label.
    package mutating func family(
        _ name: String, _ help: String, by label: String, _ samples: [(word: String, count: some BinaryInteger)]
    ) {
        begin(name, help)
        for (word, count) in samples { add([label: word], count) }
    }

    /// Writes a family with a single histogram.
    package mutating func histogram(_ name: String, _ help: String, _ reading: Histogram.Reading?) {
        guard let reading else { return }
        begin(name, "histogram", help)
        addHistogram([], reading)
    }

    /// Writes a family with a histogram for each value of a label.
    package mutating func histograms(
        _ name: String, _ help: String, by label: String, _ readings: [(word: String, reading: Histogram.Reading?)]
    ) {
        begin(name, "histogram", help)
        for case (let word, let reading?) in readings { addHistogram([(label, word)], reading) }
    }

    private mutating func addHistogram(_ labels: [(key: String, value: String)], _ reading: Histogram.Reading) {
        var count: UInt64 = 0
        for (index, bound) in reading.bounds.enumerated() {
            count += reading.counts[index]
            line("_bucket", labels + [("le", "\(reading.inUnit(bound))")], "\(count)")
        }
        count += reading.counts[reading.bounds.count]
        line("_bucket", labels + [("le", "+Inf")], "\(count)")
        line("_sum", labels, "\(Double(reading.sum) * reading.scale)")
        line("_count", labels, "\(count)")
    }

    private mutating func line(
        _ suffix: String, _ labels: some Collection<(key: String, value: String)>, _ value: String
    ) {
        text += name + suffix
        if !labels.isEmpty { text += "{\(Self.text(labels))}" }
        text += " \(value)\n"
    }

    private static func text(_ labels: some Collection<(key: String, value: String)>) -> String {
        labels.map { "\($0.key)=\"\(escaped($0.value))\"" }.joined(separator: ",")
    }

    private static func escaped(_ value: String) -> String {
        guard value.contains(where: { "\\\"\n".contains($0) }) else { return value }
        return value.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"").replacing("\n", with: "\\n")
    }
}
