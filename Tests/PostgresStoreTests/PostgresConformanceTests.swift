#if PostgreSQL
import StoreConformance
import TestSupport
import Testing

@testable import PostgresStore

// One after the other: making a database blocks its thread, and with all of them at once no thread would be left for answers.
@Suite(.serialized) struct PostgresConformanceTests {
    @Test(
        // The number of tokens is for the database to limit.
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
