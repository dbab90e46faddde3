import StoreConformance
import TestSupport
import Testing

@testable import SQLiteStore
@testable import TokenStore

@Suite struct SQLiteConformanceTests {
    @Test(arguments: StoreConformance.behaviours, [true, false])
    func `a store in SQLite does what every store does`(
        _ behaviour: StoreConformance.Behaviour, isSealed: Bool
    ) async throws {
        let folder = try TemporaryDirectory()
        try await behaviour.check { change in
            try SQLiteTokenStore(at: folder.path) { options in
                options.isSealed = isSealed
                change(&options)
            }
        }
    }
}
