#if PostgreSQL
import Cryptography
import Glibc
import Synchronization
import System
import Testing

@testable import PostgresStore
@testable import TokenStore

extension PostgresTokenStore {
    /// Opens a store on a test's database; its key ring is always the same, and in no file.
    convenience init(
        _ database: TestDatabase, ring: KeyRing? = nil, versions: VersionClock? = nil,
        report: @escaping @Sendable (StoreEvent) -> Void = { _ in },
        change: (inout StoreOptions) -> Void = { _ in },
        changePostgres: (inout PostgresOptions) -> Void = { _ in }
    ) throws {
        var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: ""))
        options.report = report
        change(&options)
        var postgres = database.options()
        changePostgres(&postgres)
        let standard = KeyRing(
            index: SecretKey([UInt8](repeating: 7, count: 32).span),
            keys: [.init(number: 1, createdAt: 1_700_000_000, key: SecretKey([UInt8](repeating: 9, count: 32).span))])
        try database.allow(keys: 1)
        let state = PostgresState(
            sealing: Sealing(ring ?? standard), versions: versions ?? VersionClock(), postgres, options)
        // It never looks at what servers have agreed on, as the ring is in no file.
        self.init(postgres, options, state, lookingEvery: .seconds(86_400))
        state.noteOpened()
        finder.start()
    }
}

extension PostgresTokenStore {
    /// Opens the handles that have connections; those that are opened next use theirs.
    ///
    /// - Returns: What lets them proceed, as long as it is kept.
    func openHandlesWithConnections() throws -> [ThreadHandoff<DescriptorPolling>] {
        try (0..<2).map { _ in
            let executor = BlockingExecutor(label: "loop")
            let box = HandleBox()
            let handle = try #require(
                try makeHandle { work in
                    executor.run {
                        work()
                        box.handle?.flush()
                    }
                } as? PostgresStoreHandle)
            box.handle = handle
            return ThreadHandoff(
                try DescriptorPolling(try #require(handle.descriptor), on: executor) {
                    handle.proceed()
                    handle.flush()
                })
        }
    }
}

extension PostgresState {
    /// The key of an id's row, as an SQL literal.
    func key(of id: String) -> String {
        var coder = RowCoder(sealing)
        var key = RowKey()
        coder.key(of: Array(id.utf8), into: &key)
        return "'\\x\(key.bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined())'::bytea"
    }
}

/// A handle that its own closures use; weak, as it holds them.
private final class HandleBox: Sendable {
    private struct Reference {
        weak var handle: PostgresStoreHandle?
    }
    private let reference = Mutex(Reference())

    var handle: PostgresStoreHandle? {
        get { reference.withLock { $0.handle } }
        set { reference.withLock { $0.handle = newValue } }
    }
}

/// A handle with one slot, which gets connections only from the test.
struct LoneHandle {
    let handle: PostgresStoreHandle
    let state: PostgresState
    private let options: PostgresOptions

    init(_ options: PostgresOptions, timeout: Duration = .seconds(60)) throws {
        let state = PostgresState(
            sealing: Sealing(.random(createdAt: 1)), versions: VersionClock(), options,
            StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: ""))
        )
        state.noteOpened()
        // Never started.
        let finder = PrimaryFinder(options, state)
        var own = options
        (own.connections, own.timeout) = (1, timeout)
        handle = try PostgresStoreHandle(state, own, finder) { $0() }
        (self.options, self.state) = (options, state)
    }

    /// Makes a connection whose server was never proven to be the primary.
    func connection(needsProof: Bool = false) throws -> ReadyConnection {
        var ready = try Dial(options, state, host: 0, trial: .asNeeded).run()
        (ready.needsProof, ready.canCommit) = (needsProof, false)
        return ready
    }

    /// Lets the handle proceed when its descriptor is readable, until a condition holds.
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
