package import Settings
package import TokenStore

extension StoreAccess {
    /// Makes the tables of a store that several servers share.
    ///
    /// - Parameters:
    ///   - settings: Name the servers' database and role.
    ///   - url: The database and the role that owns the tables; nil for those of the settings.
    ///   - serverRole: The role that is granted what servers need; nil for that of the settings, if it is another one.
    package static func migrate(
        _ settings: Settings, url: String?, serverRole: String?
    ) throws(Failure) -> SchemaMigration {
        var (own, role) = (settings, serverRole)
        if let url {
            do throws(StoreURL.Fault) {
                let owner = try StoreURL(url).user
                if role == nil, let server = settings.storeURL?.user, server != owner { role = server }
            } catch {
                throw Failure("the URL of --url \(error)")
            }
            own.store.url = url
        }
        do throws(StoreOpenError) {
            let provider = try StoreSelection.provider(own, ignoresCredential: url != nil)
            guard let migrator = provider.migrator else { throw .store(StoreFault(StoreCapability.migration.absence)) }
            return try migrator.migrate(serverRole: role)
        } catch {
            throw Failure("\(error)")
        }
    }
}
