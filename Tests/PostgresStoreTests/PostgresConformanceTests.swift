#if PostgreSQL
import StoreConformance
import TestSupport
import Testing

@testable import PostgresStore

// Serialized, because making a database blocks its thread: if all tests did so at once, no thread would be left for answers.
@Suite(.serialized) struct PostgresConformanceTests {
    @Test(arguments: StoreConformance.behaviours)
    func `a store on PostgreSQL does what every store does`(_ behaviour: StoreConformance.Behaviour) async throws {
        let database = try TestDatabase()
        try await behaviour.check { change in try PostgresTokenStore(database, change: change) }
    }
}
#endif
