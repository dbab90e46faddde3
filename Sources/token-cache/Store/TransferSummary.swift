import TokenPHPFiles

/// What an import or export has come to.
struct TransferSummary: Encodable {
    /// Tokens that were stored or written.
    var done = 0
    /// Files or tokens that were passed over, by why.
    var skipped: [String: Int] = [:]
    /// Files by how they hold their token info.
    var formats: [String: Int] = [:]

    mutating func skip(_ reason: TokenPHPFile.SkipReason) {
        skipped[reason.rawValue, default: 0] += 1
    }

    /// For a person.
    func text(_ verb: String) -> String {
        var lines = ["\(Text.count(done, "token")) \(verb)"]
        for reason in TokenPHPFile.SkipReason.allCases {
            guard let count = skipped[reason.rawValue] else { continue }
            lines.append("\(Text.number(count)) skipped: \(reason.explanation)")
        }
        return lines.joined(separator: "\n")
    }
}
