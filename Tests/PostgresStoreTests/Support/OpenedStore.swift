#if PostgreSQL
import Cryptography
import System

@testable import PostgresStore
@testable import TokenStore

extension PostgresTokenStore {
    /// Opens a store of a test's database, with a ring that is the same each time.
    convenience init(
        _ database: TestDatabase, isSealed: Bool = true, keys: StoreKeys? = nil, versions: VersionClock? = nil,
        report: @escaping @Sendable (StoreEvent) -> Void = { _ in },
        change: (inout StoreOptions) -> Void = { _ in },
        changePostgres: (inout PostgresOptions) -> Void = { _ in }
    ) throws {
        var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: ""))
        change(&options)
        var postgres = PostgresOptions(
            url: database.url, password: { nil }, connections: 2, timeout: .seconds(60), requestLimit: 10_000,
            durability: .local)
        changePostgres(&postgres)
        let target = try ConnectionTarget(url: postgres.url, password: { nil })
        let index = SecretKey([UInt8](repeating: 7, count: 32).span)
        let ring = KeyRing(
            index: index,
            keys: [.init(number: 1, createdAt: 1_700_000_000, key: SecretKey([UInt8](repeating: 9, count: 32).span))])
        let state = PostgresState(
            sealing: Sealing(keys ?? (isSealed ? .sealed(ring) : .clear(index: index))),
            versions: try versions ?? VersionClock(), hosts: target.hosts.map(\.description), options: options,
            report: report)
        let connections = PrimaryConnections(target, postgres.durability)
        try database.allow(keys: 1)
        // Never looked at: the ring is not in a file.
        let upkeep = Upkeep(connections, state, StoreAgreement(options, state), Upkeep.Times(look: .seconds(86_400)))
        self.init(postgres, target, state, connections, nil, nil, upkeep)
        state.noteOpened()
        startFinding()
    }
}
#endif
