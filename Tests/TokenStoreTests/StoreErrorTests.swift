import Testing
import TokenStore

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
