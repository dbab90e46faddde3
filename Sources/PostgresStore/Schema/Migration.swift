#if PostgreSQL
/// What makes one version of the schema from the one before, in two parts: between them servers of both versions work.
struct Migration: Sendable {
    /// The version of the schema afterwards; they count from 1 without a gap.
    let version: Int
    /// The oldest version whose servers go on working after the expansion.
    let worksWith: Int
    /// Adds the new form beside the old one.
    ///
    /// Statements of one transaction, each of which does nothing if what it makes is there.
    let expansion: [String]
    /// Removes the old form, which no server may need any more; of the same kind, and empty if there is nothing to remove.
    let contraction: [String]

    /// - Parameter worksWith: Nil for the version before this one.
    init(
        version: Int, worksWith: Int? = nil, expansion: [String], contraction: [String] = []
    ) {
        self.version = version
        self.worksWith = worksWith ?? max(1, version - 1)
        self.expansion = expansion
        self.contraction = contraction
    }

    /// All of them, in their order.
    static let all = [first]

    /// The version that this program works with.
    static let current = all.count
}
#endif
