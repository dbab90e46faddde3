import HTTP
import TokenStore

/// A store in a dictionary, or one that always fails.
final class MemorySession: TokenSession {
    var tokens: [[UInt8]: [UInt8]] = [:]
    var failure: StoreError?
    /// Answers that are in memory.
    var remembered: [[UInt8]: [UInt8]] = [:]
    /// The ids that were asked for, in memory and in the store.
    private(set) var (recalled, fetched): ([[UInt8]], [[UInt8]]) = ([], [])

    func fetch(
        _ id: [UInt8], upTo limit: Int, appendingTo tokenInfo: inout [UInt8]
    ) throws(StoreError) -> Fetched {
        fetched.append(id)
        if let failure { throw failure }
        guard let found = tokens[id] else { return .nothing }
        guard found.count <= limit else { return .longer }
        tokenInfo += found
        return .found(nil)
    }

    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], completion: @escaping (Result<Void, StoreError>) -> Void
    ) {
        if let failure { return completion(.failure(failure)) }
        tokens[id] = tokenInfo
        completion(.success(()))
    }

    func recall(_ id: Span<UInt8>, appendingTo answer: inout [UInt8]) -> Bool {
        let id = [UInt8](ByteRange(0, id.count), in: id)
        recalled.append(id)
        answer += remembered[id] ?? []
        return remembered[id] != nil
    }

    func remember(_ answer: [UInt8], under id: [UInt8], _ permit: CachePermit) {}

    func flush() {}
}
