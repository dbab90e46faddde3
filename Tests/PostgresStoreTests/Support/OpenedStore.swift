#if PostgreSQL
import Cryptography
import Glibc
import System
import Testing

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
        var postgres = database.options()
        changePostgres(&postgres)
        options.isSealed = isSealed
        let index = SecretKey([UInt8](repeating: 7, count: 32).span)
        let ring = KeyRing(
            index: index,
            keys: [.init(number: 1, createdAt: 1_700_000_000, key: SecretKey([UInt8](repeating: 9, count: 32).span))])
        try database.allow(keys: 1)
        let state = PostgresState(
            sealing: Sealing(keys ?? (isSealed ? .sealed(ring) : .clear(index: index))),
            versions: try versions ?? VersionClock(), postgres, options, report: report)
        // Never looked at: the ring is not in a file.
        self.init(postgres, options, state, Upkeep.Times(look: .seconds(86_400)))
        state.noteOpened()
        finder.start()
    }
}

/// A handle of one slot, which has no connections but those that a test gives it.
struct LoneHandle {
    let handle: PostgresStoreHandle
    let state: PostgresState
    private let options: PostgresOptions

    init(_ options: PostgresOptions, timeout: Duration = .seconds(60)) throws {
        let state = PostgresState(
            sealing: Sealing(.clear(index: try .random())), versions: try VersionClock(), options,
            StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: ""))
        ) { _ in }
        state.noteOpened()
        // Never started.
        let finder = PrimaryFinder(options.hosts, state) { _, _ in Self.dial(options, state) }
        var own = options
        (own.connections, own.timeout) = (1, timeout)
        handle = try PostgresStoreHandle(state, own, finder) { $0() }
        (self.options, self.state) = (options, state)
    }

    private static func dial(_ options: PostgresOptions, _ state: PostgresState) -> Dial {
        Dial(options: options, host: options.hosts[0], trial: .asNeeded, proofs: state.proofs) { _, _ in }
    }

    /// A connection whose server was never proven to be the primary.
    func connection(needsProof: Bool = false) throws -> ReadyConnection {
        let ready = try Self.dial(options, state).run().get()
        return ReadyConnection(
            connection: ready.connection, server: ready.server, description: ready.description, needsProof: needsProof,
            provenAt: MonotonicTime(nanoseconds: 0), canCommit: false)
    }

    /// Has the handle do what its descriptor announces, until something is so.
    func proceed(until isSo: () -> Bool) throws {
        for _ in 0..<600 where !isSo() {
            var descriptor = pollfd(fd: try #require(handle.descriptor), events: Int16(POLLIN), revents: 0)
            poll(&descriptor, 1, 1_000)
            handle.proceed()
        }
        #expect(isSo())
    }
}
#endif
