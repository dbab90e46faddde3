internal import Synchronization
internal import TokenStore

/// One thread's reader, and the writes it has gathered for the writer.
///
/// The reads between two calls of `flush` share one read transaction, which saves each of them the taking and giving back
/// of the WAL's read lock. A commit that begins or ends in between ends it, so that a read misses no write that was answered
/// before it, nor one that another read has seen.
final class SQLiteSession: TokenSession, @unchecked Sendable {
    // Unchecked: it belongs to its thread; what the writer keeps of it is only used by what `deliver` runs there.

    private typealias Completion = (Result<Void, StoreError>) -> Void

    private let path: String
    private let state: StoreState
    private let writerThread: WriterThread
    private let deliver: @Sendable (@escaping @Sendable () -> Void) -> Void
    private var coder: RowCoder
    private var gathered: [Row] = []
    /// Bytes of them that were admitted.
    private var gatheredBytes = 0
    /// Who waits for the gathered rows, in the same order.
    private var completions: [Completion] = []
    /// Who waits for the batches that the writer has, by their numbers.
    private var submitted: [UInt64: [Completion]] = [:]
    private var batchNumber: UInt64 = 0
    private var reader: TokenReader
    /// The store's generation that the reader was opened in.
    private var generation: UInt64
    /// The store's count of commits before the open read transaction began; nil when none is open.
    ///
    /// An odd one, of a commit under way, is never that of the next read: what that commit stores may become readable at any
    /// moment, and then has to stay so.
    private var snapshot: UInt64?

    init(
        path: String, state: StoreState, writerThread: WriterThread,
        deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(SQLiteError) {
        generation = state.generation.load(ordering: .acquiring)
        reader = try TokenReader(path: path, state: state)
        coder = RowCoder(state.sealing)
        self.path = path
        self.state = state
        self.writerThread = writerThread
        self.deliver = deliver
    }

    /// Reads are done at once, and `WriteAdmission` fails writes that wait behind a stalled disk.
    var timeLimit: Duration? { nil }

    func fetch(
        _ id: [UInt8], upTo limit: Int, orLater makeCompletion: () -> FetchCompletion
    ) throws(StoreError) -> Fetched? {
        while true {
            try refreshReader()
            var tokenInfo: [UInt8] = []
            do throws(StoreError) {
                try refreshSnapshot()
                let found = try reader.fetch(id, upTo: limit, appendingTo: &tokenInfo)
                if !isOutdated {
                    switch found {
                    case .nothing: return .nothing
                    case .longer: return .longer
                    case .found(let deadline): return .found(tokenInfo, until: deadline)
                    }
                }
            } catch {
                guard isOutdated else {
                    state.noteFailedRead(error)
                    throw error
                }
            }
            // The WAL was lost meanwhile: what was read may be wrong.
        }
    }

    /// Whether the database was opened anew, or is about to be, since the reader was opened: it may have read anything.
    private var isOutdated: Bool {
        state.generation.load(ordering: .acquiring) != generation || !state.isInPlace.load(ordering: .acquiring)
    }

    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], completion: @escaping (Result<Void, StoreError>) -> Void
    ) {
        let bytes = Token.waitingBytes(id: id, info: tokenInfo)
        if let overload = writerThread.admission.admit(bytes) { return completion(.failure(.overloaded(overload))) }
        do throws(SealingError) {
            gathered.append(try coder.row(of: Token(id: id, info: tokenInfo)))
            gatheredBytes += bytes
            completions.append(completion)
        } catch {
            writerThread.admission.release(bytes)
            completion(.failure(.sealing(error)))
        }
    }

    /// Outcomes that one job tells, so that those of a large group leave the thread time for other work in between.
    private static let outcomesTogether = 64

    /// Opens the reader anew when the database was.
    private func refreshReader() throws(StoreError) {
        guard state.isInPlace.load(ordering: .acquiring) else { throw state.fault ?? .vanished(path: path) }
        let current = state.generation.load(ordering: .acquiring)
        guard current != generation else { return }
        closeSnapshot()
        do throws(SQLiteError) {
            reader = try TokenReader(path: path, state: state)
        } catch {
            throw .read(StoreFault(error))
        }
        generation = current
    }

    /// Opens a read transaction unless one is open that has seen every commit so far.
    private func refreshSnapshot() throws(StoreError) {
        // Read before the transaction begins: it may then see more than this says, never less.
        let commits = state.commitCount.load(ordering: .acquiring)
        if snapshot == commits && commits % 2 == 0 { return }
        closeSnapshot()
        try reader.beginSnapshot()
        snapshot = commits
    }

    private func closeSnapshot() {
        guard snapshot.take() != nil else { return }
        reader.endSnapshot()
    }

    func flush() {
        closeSnapshot()
        guard !gathered.isEmpty else { return }
        let (rows, bytes, number) = (gathered, gatheredBytes, batchNumber)
        submitted[number] = completions
        (gathered, gatheredBytes, completions) = ([], 0, [])
        batchNumber += 1
        writerThread.submit(
            WriteBatch(rows: rows, admittedBytes: bytes) { [self] outcomes in
                for start in stride(from: 0, to: outcomes.count, by: Self.outcomesTogether) {
                    deliver { self.complete(number, outcomes, from: start) }
                }
            }
        )
    }

    /// Tells those who wait for a batch what came of it, from an index on.
    private func complete(_ number: UInt64, _ outcomes: [Result<Void, StoreError>], from start: Int) {
        let end = min(start + Self.outcomesTogether, outcomes.count)
        let isLast = end == outcomes.count
        guard let completions = isLast ? submitted.removeValue(forKey: number) : submitted[number] else { return }
        for index in start..<end { completions[index](outcomes[index]) }
    }
}
