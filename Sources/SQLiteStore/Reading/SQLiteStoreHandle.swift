import Synchronization
import TokenStore

/// One thread's reader, and the writes that it has gathered for the writer's thread.
///
/// Reads between two calls of `flush` share one read transaction, so that they need not acquire and release the WAL's
/// read lock each. After a commit has begun or ended, the next read begins a new transaction: it finds every write that
/// was acknowledged before it, or that an earlier read has found.
final class SQLiteStoreHandle: StoreHandle, @unchecked Sendable {
    // Unchecked: it belongs to its thread; other threads use it only through `deliver`, which runs closures on its thread.

    let database: OpenDatabase
    private let deliver: @Sendable (@escaping @Sendable () -> Void) -> Void
    var coder: RowCoder
    private var gathered: [PendingChange] = []
    /// When sessions were used since the last flush, in seconds since 1970, by the keys of their rows.
    ///
    /// Private, so that the compiler sees all uses and each turn needs no check for overlapping ones.
    private var uses: [[UInt8]: Int64] = [:]
    private let eraser: UserEraser
    /// Completions of the erasures under way, by their numbers.
    private var erasures: [UInt64: Completion<Erasure>] = [:]
    private var erasureNumber: UInt64 = 0
    private var reader: TokenReader
    /// The store's generation when the reader was opened.
    private var generation: UInt64
    /// The store's `commitCount` when the open read transaction began; nil if none is open.
    ///
    /// A transaction that began during a commit, with an odd count, serves one read only: the commit may become readable
    /// at any moment, and what one read has found must not be missing in the next.
    private var snapshot: UInt64?

    init(
        _ database: OpenDatabase, eraser: UserEraser,
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(SQLiteError) {
        generation = database.state.generation.load(ordering: .acquiring)
        reader = try TokenReader(path: database.path, state: database.state)
        coder = RowCoder(database.state.sealing)
        self.database = database
        self.eraser = eraser
        self.deliver = deliver
    }

    /// Nil: reads end at once, and the writer ends the waits of writes.
    ///
    /// Writes in the queue fail when the disk stalls; those that are being committed wait for the disk, as they may
    /// still be stored.
    var timeLimit: Duration? { nil }

    var unixTime: Int64 { database.state.clock.unixTime }

    func fetch(
        _ id: [UInt8], upTo limit: Int, if session: SessionKey?, orLater makeCompletion: () -> Completion<Fetched>
    ) throws(StoreError) -> Fetched? {
        try reading(id, among: database.state.damagedTokens) { (reader) throws(StoreError) in
            if let session, case .nothing = try reader.findSession(session) { throw .sessionEnded }
            return try reader.fetch(id, upTo: limit)
        }
    }

    /// Reads with the handle's reader, in the present read transaction.
    ///
    /// - Parameters:
    ///   - key: What is looked for.
    ///   - damaged: Rows of the same table.
    ///   - body: Reads.
    func reading<Result>(
        _ key: some Hashable, among damaged: DamagedRows, _ body: (TokenReader) throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        try refreshReader()
        do {
            try refreshSnapshot()
            let result = try body(reader)
            damaged.noteSound()
            return result
        } catch {
            database.state.noteFailedRead(error) { !damaged.note(key) }
            throw error
        }
    }

    /// Gathers a change, if there is room in the queue.
    ///
    /// - Parameters:
    ///   - bytes: What it takes while it waits.
    ///   - completion: Called before this returns with the error of a change that cannot be made.
    ///   - make: Makes the change; called at most once, before this returns.
    func gather(
        _ bytes: Int, _ completion: ChangeCompletion, _ make: (inout RowCoder) throws(SealingError) -> Change
    ) {
        if let overload = database.writerThread.admission.admit(bytes) {
            return completion.take(.failure(.overloaded(overload)))
        }
        do {
            gathered.append(PendingChange(try make(&coder), bytes, completion))
        } catch {
            database.writerThread.admission.release(bytes)
            completion.take(.failure(.sealing(error)))
        }
    }

    /// Outcomes that are delivered together; between two deliveries the thread can do other work.
    private static let outcomesTogether = 64

    /// Opens a new reader if the database was opened again.
    private func refreshReader() throws(StoreError) {
        let current = database.state.generation.load(ordering: .acquiring)
        guard current != generation else { return }
        closeSnapshot()
        reader = try StoreError.reading { () throws(SQLiteError) in
            try TokenReader(path: database.path, state: database.state)
        }
        generation = current
    }

    /// Opens a read transaction, unless the open one sees every commit so far.
    private func refreshSnapshot() throws(StoreError) {
        // Read before the transaction begins, which may then see more commits, never fewer.
        let commits = database.state.commitCount.load(ordering: .acquiring)
        if snapshot == commits && commits % 2 == 0 { return }
        closeSnapshot()
        try reader.beginSnapshot()
        snapshot = commits
    }

    private func closeSnapshot() {
        guard snapshot.take() != nil else { return }
        reader.endSnapshot()
    }

    func erase(_ user: [UInt8], completion: Completion<Erasure>) {
        // Changes that were requested earlier must be made first.
        submitGathered()
        let number = erasureNumber
        erasureNumber += 1
        erasures[number] = completion
        eraser.begin(user) { [self] outcome in
            deliver { self.erasures.removeValue(forKey: number)?(outcome) }
        }
    }

    func noteUse(of key: SessionKey, at unixTime: Int64) {
        let rowKey = coder.rowKey(of: key)
        uses[rowKey] = max(unixTime, uses[rowKey] ?? 0)
    }

    /// Gathers the uses of sessions since the last call as one change; drops them if there is no room.
    @inline(never)
    private func gatherUses() {
        let noted = uses.map { (key: $0.key, usedAt: $0.value) }
        uses.removeAll(keepingCapacity: noted.count <= 256)
        gather(Self.waitingBytes + noted.count * 64, .none) { _ in .noteUses(noted) }
    }

    func flush() {
        closeSnapshot()
        submitGathered()
    }

    private func submitGathered() {
        if !uses.isEmpty { gatherUses() }
        guard !gathered.isEmpty else { return }
        let changes = gathered
        gathered = []
        database.writerThread.submit(
            WriteBatch(changes: changes) { [deliver] in
                for start in stride(from: 0, to: changes.count, by: Self.outcomesTogether) {
                    deliver { for change in changes[start...].prefix(Self.outcomesTogether) { change.complete() } }
                }
            }
        )
    }
}
