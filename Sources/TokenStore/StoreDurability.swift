/// Where a write must be on disk before it is acknowledged, for stores whose database decides that.
package enum StoreDurability: String, Sendable, CaseIterable {
    /// It is on the disk of a second machine as well. A database that would confirm it earlier is not used.
    case synchronous
    /// It is on the disk of the machine that the database calls its primary.
    case local
}
