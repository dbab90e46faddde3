/// Creates and changes the tables of a store that several servers share; the servers themselves never do that.
package protocol SchemaMigrator: Sendable {
    /// Brings the tables to the version of this program; servers of the previous version can go on using them.
    ///
    /// - Parameters:
    ///   - contracts: Whether to remove the old form of the tables as well; refused while a server runs that needs it.
    ///   - serverRole: The database role of the servers, which is granted what they need; nil if it is the present role.
    func migrate(contracts: Bool, serverRole: String?) throws(StoreOpenError) -> SchemaMigration
}

/// What a migration has done and found.
package struct SchemaMigration: Codable, Sendable {
    /// The version of the tables before; 0 if there were none.
    package var formerVersion: Int
    /// The version of the tables now.
    package var version: Int
    /// The version that this program works with.
    package var programVersion: Int
    /// Versions whose former form is still there, beside the new one.
    package var uncontracted: [Int]
    /// Running servers that work with an earlier version than the present one.
    package var olderServers: [Server]
    /// The role that was granted what servers need; nil if none was.
    package var grantedTo: String?

    /// A server that uses the store.
    package struct Server: Codable, Hashable, Sendable {
        /// The name of its machine.
        package var name: String
        /// The version of its program.
        package var version: String
        package var schemaVersion: Int

        package init(name: String, version: String, schemaVersion: Int) {
            self.name = name
            self.version = version
            self.schemaVersion = schemaVersion
        }
    }

    package init(
        formerVersion: Int, version: Int, programVersion: Int, uncontracted: [Int], olderServers: [Server],
        grantedTo: String?
    ) {
        self.formerVersion = formerVersion
        self.version = version
        self.programVersion = programVersion
        self.uncontracted = uncontracted
        self.olderServers = olderServers
        self.grantedTo = grantedTo
    }
}
