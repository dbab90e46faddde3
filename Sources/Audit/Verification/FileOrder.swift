/// The order in which files of a log were written, by the sequence numbers of their first lines, which nobody has verified.
package enum FileOrder {
    /// Fails if files that do not verify are probably given in the wrong order.
    ///
    /// - Parameter paths: Files that can be read again, in the order in which they were given.
    package static func check(_ paths: [String]) throws(AuditError) {
        var starts: [(path: String, sequence: UInt64)] = []
        for path in paths {
            var reader = try LineReader(path)
            // What is no line of a log has no place in an order.
            guard case .whole(let bytes) = try reader.next(), let line = AuditLine(bytes) else { return }
            starts.append((path, line.sequence))
        }
        let sorted = starts.sorted { $0.sequence < $1.sequence }.map(\.path)
        guard Set(starts.map(\.sequence)).count == paths.count, sorted != paths else { return }
        throw .order(sorted)
    }
}
