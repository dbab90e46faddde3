import StoreConformance
import Testing
import TokenStore

@Suite struct MemoryStoreTests {
    @Test(arguments: StoreConformance.behaviours, [false, true])
    func `a store in memory does what every store does`(
        _ behaviour: StoreConformance.Behaviour, readsLater: Bool
    ) async throws {
        let disk = MemoryDisk()
        try await behaviour.check { change in
            var options = StoreOptions(keyRing: KeyRingFile(path: "", credentials: nil, directory: "/nowhere"))
            change(&options)
            return MemoryStore(disk, options: options, readsLater: readsLater)
        }
    }
}

@Suite struct SessionIDTests {
    @Test func `an id is never taken for an option of a command, and its text can be read back`() throws {
        for _ in 0..<2_000 {
            let id = SessionID.random()
            #expect(id.description.utf8.count == 22 && !id.description.hasPrefix("-"))
            #expect(SessionID(id.description) == id)
        }
    }
}

@Suite struct StoreErrorTests {
    @Test("only what may pass by itself is worth another try")
    func retries() {
        #expect(StoreError.staleKey.mayRetry)
        let lasting: [StoreError] = [
            .newer, .preconditionFailed(current: nil), .sessionEnded, .sealing(.malformed), .refused("no"), .closed,
        ]
        for error in lasting { #expect(!error.mayRetry, "\(error)") }
    }
}
