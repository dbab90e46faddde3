import TokenStore

/// A handle of a `MemoryStore`: writes are gathered until `flush`, and their outcomes delivered.
///
/// Unchecked: it belongs to its thread; what is sent elsewhere comes back through `deliver`.
final class MemoryStoreHandle: StoreHandle, @unchecked Sendable {
    private let store: MemoryStore
    private let readsLater: Bool
    private let deliver: @Sendable (@escaping @Sendable () -> Void) -> Void
    private var gathered: [(id: [UInt8], row: MemoryRow)] = []
    private var admittedBytes = 0
    private var completions: [(Result<Void, StoreError>) -> Void] = []

    init(
        _ store: MemoryStore, readsLater: Bool, deliver: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) {
        self.store = store
        self.readsLater = readsLater
        self.deliver = deliver
    }

    var timeLimit: Duration? { nil }

    func fetch(
        _ id: [UInt8], upTo limit: Int, orLater makeCompletion: () -> FetchCompletion
    ) throws(StoreError) -> Fetched? {
        guard readsLater else { return store.fetch(id, upTo: limit) }
        let completion = Handover(makeCompletion())
        deliver { [store] in completion.value(.success(store.fetch(id, upTo: limit))) }
        return nil
    }

    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], completion: @escaping (Result<Void, StoreError>) -> Void
    ) {
        let bytes = Token.waitingBytes(id: id, info: tokenInfo)
        if let error = store.admit(bytes) { return completion(.failure(error)) }
        gathered.append((id, MemoryRow(info: tokenInfo, writtenAt: MemoryRow.now)))
        admittedBytes += bytes
        completions.append(completion)
    }

    func flush() {
        guard !gathered.isEmpty else { return }
        let outcomes = store.commit(gathered, admittedBytes: admittedBytes)
        let waiting = Handover(completions)
        (gathered, admittedBytes, completions) = ([], 0, [])
        deliver {
            for (completion, outcome) in zip(waiting.value, outcomes) { completion(outcome) }
        }
    }

    /// Something of the handle's thread, on its way back there.
    private struct Handover<Value>: @unchecked Sendable {
        let value: Value

        init(_ value: Value) {
            self.value = value
        }
    }
}
