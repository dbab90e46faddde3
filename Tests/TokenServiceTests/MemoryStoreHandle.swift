import StoreConformance
import TokenStore

/// A store in a dictionary, or one that always fails.
final class MemoryStoreHandle: TokensOnlyHandle {
    var tokens: [[UInt8]: [UInt8]] = [:]
    /// Those of the tokens that were written here.
    private(set) var versions: [[UInt8]: TokenVersion] = [:]
    private var lastVersion: Int64 = 0
    var failure: StoreError?
    /// Learns of all writes.
    var observer: (any WriteObserver)?
    /// Whether each id is its own token info.
    var echoesIDs = false
    /// The ids that were asked for.
    private(set) var fetched: [[UInt8]] = []

    var timeLimit: Duration? { nil }

    func fetch(
        _ id: [UInt8], upTo limit: Int, orLater makeCompletion: () -> Completion<Fetched>
    ) throws(StoreError) -> Fetched? {
        fetched.append(id)
        if let failure { throw failure }
        guard let found = echoesIDs ? id : tokens[id] else { return .nothing }
        return found.count <= limit ? .found(found, until: .max, version: version(of: id)) : .longer
    }

    func store(
        _ tokenInfo: [UInt8], under id: [UInt8], writtenAt: Int64?, if condition: WriteCondition,
        completion: Completion<TokenVersion>
    ) {
        if let error = failure ?? fault(of: condition, id) { return completion(.failure(error)) }
        observer?.willWrite([id])
        tokens[id] = tokenInfo
        lastVersion += 1
        versions[id] = TokenVersion(rawValue: lastVersion)
        observer?.didWrite([id])
        completion(.success(version(of: id)))
    }

    func remove(
        _ id: [UInt8], if condition: WriteCondition, completion: Completion<Bool>
    ) {
        if let error = failure ?? fault(of: condition, id) { return completion(.failure(error)) }
        observer?.willWrite([id])
        let wasThere = tokens.removeValue(forKey: id) != nil
        versions[id] = nil
        observer?.didWrite([id])
        completion(.success(wasThere))
    }

    private func version(of id: [UInt8]) -> TokenVersion { versions[id] ?? TokenVersion(rawValue: 0) }

    private func fault(of condition: WriteCondition, _ id: [UInt8]) -> StoreError? {
        let current = tokens[id].map { _ in version(of: id) }
        if condition.session != nil { return .sessionEnded }
        return condition.match.holds(for: current) ? nil : .preconditionFailed(current: current)
    }

    func flush() {}
}
