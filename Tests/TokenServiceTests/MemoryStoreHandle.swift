import TokenStore

/// A store in a dictionary, or one that always fails.
final class MemoryStoreHandle: StoreHandle {
    var tokens: [[UInt8]: [UInt8]] = [:]
    var failure: StoreError?
    /// Learns of all writes.
    var observer: (any WriteObserver)?
    /// Whether each id is its own token info.
    var echoesIDs = false
    /// The ids that were asked for.
    private(set) var fetched: [[UInt8]] = []

    var timeLimit: Duration? { nil }

    func fetch(
        _ id: [UInt8], upTo limit: Int, orLater makeCompletion: () -> FetchCompletion
    ) throws(StoreError) -> Fetched? {
        fetched.append(id)
        if let failure { throw failure }
        guard let found = echoesIDs ? id : tokens[id] else { return .nothing }
        return found.count <= limit ? .found(found, until: .max) : .longer
    }

    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], completion: @escaping (Result<Void, StoreError>) -> Void
    ) {
        if let failure { return completion(.failure(failure)) }
        observer?.willWrite([id])
        tokens[id] = tokenInfo
        observer?.didWrite([id])
        completion(.success(()))
    }

    func flush() {}
}
