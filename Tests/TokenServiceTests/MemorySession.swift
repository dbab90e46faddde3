import TokenStore

/// A store in a dictionary, or one that always fails.
final class MemorySession: TokenSession {
    var tokens: [[UInt8]: [UInt8]] = [:]
    var failure: StoreError?

    func fetch(_ id: [UInt8], appendingTo tokenInfo: inout [UInt8]) async throws(StoreError) -> Bool {
        if let failure { throw failure }
        guard let found = tokens[id] else { return false }
        tokenInfo += found
        return true
    }

    func store(_ tokenInfo: [UInt8], under id: [UInt8]) async throws(StoreError) {
        if let failure { throw failure }
        tokens[id] = tokenInfo
    }

    func flush() {}
}
