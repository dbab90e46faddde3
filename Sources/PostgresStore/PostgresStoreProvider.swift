#if PostgreSQL
internal import Cryptography
internal import Glibc
internal import System
package import TokenStore

/// The store in the database that `store.url` names.
package struct PostgresStoreProvider: StoreProvider {
    private let postgres: PostgresOptions
    private let options: StoreOptions

    /// - Parameters:
    ///   - postgres: Where the database is, and how it is used.
    ///   - options: What the operator has decided.
    package init(_ postgres: PostgresOptions, options: StoreOptions) {
        self.postgres = postgres
        self.options = options
    }

    package var software: StoreSoftware { StoreSoftware(name: "libpq", version: PostgresLibrary.version) }

    package var fileNames: [String] { [] }

    package var isShared: Bool { true }

    /// The database has to limit its size.
    package var enforcesLimits: Bool { false }

    package var missingPath: String? { nil }

    package var examiner: (any StoreExaminer)? { nil }

    package func open(
        in directory: DataDirectory, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> any TokenStore {
        do throws(PostgresError) {
            let target = try ConnectionTarget(url: postgres.url, password: postgres.password)
            let state = PostgresState(
                sealing: Sealing(try keys(report)), versions: try versions(), hosts: target.hosts.map(\.description),
                options: options, report: report)
            return PostgresTokenStore(postgres, target, state, id: try processID())
        } catch {
            throw StoreOpenError(error)
        }
    }

    package func takeOffline(
        in directory: DataDirectory, report: @escaping @Sendable (StoreEvent) -> Void
    ) throws(StoreOpenError) -> (any OfflineStore)? { nil }

    private func versions() throws(PostgresError) -> VersionClock {
        do throws(CryptographyError) {
            return try VersionClock()
        } catch {
            throw .unexpected("\(error)")
        }
    }

    /// 16 random bytes, which tell this process from all others that use the database.
    private func processID() throws(PostgresError) -> [UInt8] {
        do throws(CryptographyError) {
            return try RandomBytes.published(16)
        } catch {
            throw .unexpected("\(error)")
        }
    }

    private func keys(_ report: (StoreEvent) -> Void) throws(PostgresError) -> StoreKeys {
        do {
            guard options.isSealed else { return .clear(index: try .random()) }
            if let ring = try options.keyRing.load() { return .sealed(ring) }
            let ring = try KeyRing.random(createdAt: Int64(time(nil)))
            try options.keyRing.save(ring)
            report(.madeKeyRing(path: options.keyRing.path))
            return .sealed(ring)
        } catch {
            throw .unexpected("\(error)")
        }
    }
}
#endif
