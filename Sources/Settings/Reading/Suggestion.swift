/// Finds the name that a mistyped one was meant to be.
package enum Suggestion {
    /// The candidate with the fewest edits; nil if it takes more edits than a typing error does.
    package static func nearest(to text: String, among candidates: [String]) -> String? {
        let ranked = candidates.map { (candidate: $0, distance: distance(text.lowercased(), $0.lowercased())) }
        guard let best = ranked.min(by: { $0.distance < $1.distance }) else { return nil }
        return best.distance <= max(2, text.count / 4) ? best.candidate : nil
    }

    /// Levenshtein's distance.
    private static func distance(_ first: String, _ second: String) -> Int {
        let second = Array(second)
        var row = Array(0...second.count)
        for (line, character) in first.enumerated() {
            var diagonal = row[0]
            row[0] = line + 1
            for column in second.indices {
                let replaced = diagonal + (character == second[column] ? 0 : 1)
                diagonal = row[column + 1]
                row[column + 1] = min(replaced, diagonal + 1, row[column] + 1)
            }
        }
        return row[second.count]
    }
}
