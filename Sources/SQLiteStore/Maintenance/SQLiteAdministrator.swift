internal import Synchronization
package import TokenStore

/// Administers a SQLite store on a queue of its own, in steps that occupy the writer no longer than clients' groups do.
package actor SQLiteAdministrator: StoreAdministrator, StoreBackups, KeyRingAdministrator, StoreVerifier {
    let store: OpenDatabase
    private let executor = BlockingExecutor(label: "administration")
    let longReads = LongReads()
    private var openReader: (reader: TokenReader, generation: UInt64)?

    package nonisolated let users: any UserAdministrator

    init(_ store: OpenDatabase, users: any UserAdministrator) {
        self.store = store
        self.users = users
    }

    package nonisolated var backups: (any StoreBackups)? { self }
    package nonisolated var keyRing: (any KeyRingAdministrator)? { self }
    package nonisolated var verifier: (any StoreVerifier)? { self }

    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe executor.asUnownedSerialExecutor()
    }

    /// The reader, opened again if the database was.
    func reader() throws(StoreError) -> TokenReader {
        let generation = store.state.generation.load(ordering: .acquiring)
        if let openReader, openReader.generation == generation { return openReader.reader }
        let reader = try reading { () throws(SQLiteError) in
            try TokenReader(path: store.path, state: store.state)
        }
        openReader = (reader, generation)
        return reader
    }

    func reading<Result>(_ body: () throws(SQLiteError) -> Result) throws(StoreError) -> Result {
        do throws(SQLiteError) {
            return try body()
        } catch {
            throw .read(StoreFault(error))
        }
    }

    /// Reads with the administration's connection.
    func readingRows<Result>(
        _ body: (SQLiteConnection) throws(SQLiteError) -> Result
    ) throws(StoreError) -> Result {
        let connection = try reader().connection
        return try reading { () throws(SQLiteError) in try body(connection) }
    }

    /// Runs a long read, which fails when the task is cancelled.
    func readingForLong<Value: Sendable>(
        _ body: @Sendable (SQLiteConnection) throws(SQLiteError) -> Value
    ) async throws(StoreError) -> Value {
        let outcome = await longReads.read(store.path, body)
        if Task.isCancelled {
            throw .refused("it was interrupted, because the server is stopping or the client has disconnected")
        }
        return try reading { () throws(SQLiteError) in try outcome.get() }
    }
}
