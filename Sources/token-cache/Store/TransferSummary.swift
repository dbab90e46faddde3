import TokenPHPFiles

/// The result of an import or export.
struct TransferSummary: Encodable {
    /// The number of tokens stored or written.
    var done = 0
    /// The number of files or tokens skipped, by reason.
    var skipped: [String: Int] = [:]
    /// The number of files by format.
    var formats: [String: Int] = [:]

    mutating func skip(_ reason: TokenPHPFile.SkipReason) {
        skipped[reason.rawValue, default: 0] += 1
    }

    /// The summary as text, one line for each count.
    func text(_ verb: String) -> String {
        var lines = ["\(Text.count(done, "token")) \(verb)"]
        for reason in TokenPHPFile.SkipReason.allCases {
            guard let count = skipped[reason.rawValue] else { continue }
            lines.append("\(Text.number(count)) skipped: \(reason.explanation)")
        }
        return lines.joined(separator: "\n")
    }
}
