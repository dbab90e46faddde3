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
