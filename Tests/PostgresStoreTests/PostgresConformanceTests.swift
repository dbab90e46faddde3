#if PostgreSQL
import StoreConformance
import TestSupport
import Testing

@testable import PostgresStore

// Serialized, because making a database blocks its thread: if all tests did so at once, no thread would be left for answers.
@Suite(.serialized) struct PostgresConformanceTests {
    @Test(
        // PostgreSQL, and not the store, limits the number of tokens.
        arguments: StoreConformance.behaviours.filter { !$0.description.hasPrefix("at the limit of tokens") },
        [true, false])
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
