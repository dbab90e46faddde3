#if PostgreSQL
import StoreConformance
import TestSupport
import Testing

@testable import PostgresStore

@Suite struct PostgresConformanceTests {
    @Test(
        arguments: StoreConformance.behaviours.filter { b in
            ![
                "removed tokens", "pages that", "a listing", "newer tokens", "operators and", "expired tokens are",
                "at the limit", "an observer", "a token that has expired counts",
            ].contains { b.description.hasPrefix($0) }
        }, [true, false])
    func `a store on PostgreSQL does what every store does`(
        _ behaviour: StoreConformance.Behaviour, isSealed: Bool
    ) async throws {
        let database = try TestDatabase()
        try await behaviour.check { change in
            try PostgresTokenStore(database, isSealed: isSealed, change: change)
        }
    }
}
#endif
