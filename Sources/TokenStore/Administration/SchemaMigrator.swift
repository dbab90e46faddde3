/// Makes the tables of a store that several servers share; the servers themselves never do that.
package protocol SchemaMigrator: Sendable {
    /// Makes the tables if there are none, and what else the servers need; may be repeated.
    ///
    /// - Parameter serverRole: The database role of the servers, which is granted what they need; nil if it is the present role.
    func migrate(serverRole: String?) throws(StoreOpenError) -> SchemaMigration
}

/// What a migration has done.
package struct SchemaMigration: Codable, Sendable {
    /// The version of the tables.
    package var version: Int
    /// Whether there were none.
    package var isNew: Bool
    /// The role that was granted what servers need; nil if none was.
    package var grantedTo: String?

    package init(version: Int, isNew: Bool, grantedTo: String?) {
        self.version = version
        self.isNew = isNew
        self.grantedTo = grantedTo
    }
}
