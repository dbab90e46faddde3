#if PostgreSQL
internal import TokenStore

/// How long PostgreSQL's versions get corrections (postgresql.org/support/versioning).
enum VersionSupport {
    /// The oldest version that the store was made for.
    static let oldest = 13
    private static let ends: [Int: (time: Int64, day: String)] = [
        13: (1_762_992_000, "2025-11-13"), 14: (1_794_441_600, "2026-11-12"), 15: (1_825_891_200, "2027-11-11"),
        16: (1_857_340_800, "2028-11-09"), 17: (1_888_790_400, "2029-11-08"), 18: (1_920_844_800, "2030-11-14"),
    ]

    /// - Parameters:
    ///   - version: Such as `15.18`.
    ///   - now: In seconds since 1970.
    static func warning(_ version: String, now: Int64) -> StoreFinding? {
        let major = Int(version.prefix { $0 != "." && $0.isNumber })
        guard let major else { return nil }
        if major < oldest {
            return .problem(
                "token-cache was not made for PostgreSQL \(version), only for \(oldest) and later",
                "upgrade the database")
        }
        guard let end = ends[major], now >= end.time else { return nil }
        return .warning(
            "the PostgreSQL project does not support PostgreSQL \(version) since \(end.day)",
            "upgrade to a later major version, or see that your distribution still fixes this one")
    }
}
#endif
