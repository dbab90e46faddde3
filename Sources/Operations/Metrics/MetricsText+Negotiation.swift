internal import Metrics

extension MetricsText.Format {
    /// The format that a scraper prefers, by its header Accept (RFC 9110, section 12.5.1).
    ///
    /// OpenMetrics only where it is asked for by name, in version 1.0.0 or any; between equals it is preferred.
    ///
    /// - Parameter accept: The header's value, empty without one.
    init(accept: String) {
        var (open, plain) = (0.0, 0.0)
        for range in accept.lowercased().split(separator: ",").map(MediaRange.init) {
            switch range.type {
            case "application/openmetrics-text" where range.version == nil || range.version == "1.0.0":
                open = max(open, range.quality)
            case "text/plain" where range.version == nil || range.version == "0.0.4", "text/*", "*/*":
                plain = max(plain, range.quality)
            default: break
            }
        }
        self = open > 0 && open >= plain ? .openMetrics : .prometheus
    }
}

/// One element of Accept.
private struct MediaRange {
    let type: String
    private(set) var version: String?
    private(set) var quality = 1.0

    init(_ text: Substring) {
        let parts = text.split(separator: ";", omittingEmptySubsequences: false).map { Self.trimmed($0) }
        type = String(parts[0])
        for parameter in parts.dropFirst() {
            guard let equals = parameter.firstIndex(of: "=") else { continue }
            let value = Self.trimmed(parameter[parameter.index(after: equals)...], of: " \t\"")
            switch Self.trimmed(parameter[..<equals]) {
            case "version": version = String(value)
            // Without a valid number from 0 to 1, the element is ignored.
            case "q": quality = Double(value).flatMap { 0...1 ~= $0 ? $0 : nil } ?? 0
            default: break
            }
        }
    }

    private static func trimmed(_ text: Substring, of characters: String = " \t") -> Substring {
        let start = text.drop { characters.contains($0) }
        guard let end = start.lastIndex(where: { !characters.contains($0) }) else { return start.prefix(0) }
        return start[...end]
    }
}
