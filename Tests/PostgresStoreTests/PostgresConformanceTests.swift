#if PostgreSQL
import StoreConformance
import Synchronization
import System
import TestSupport
import Testing
import TokenStore

@testable import PostgresStore

// Serialized, because making a database blocks its thread: if all tests did so at once, no thread would be left for answers.
@Suite(.serialized) struct PostgresConformanceTests {
    @Test(arguments: StoreConformance.behaviours)
    func `a store on PostgreSQL does what every store does`(_ behaviour: StoreConformance.Behaviour) async throws {
        let database = try TestDatabase()
        try await behaviour.check { change in try PostgresTokenStore(database, change: change) }
    }

    @Test(arguments: StoreConformance.behaviours)
    func `so does one through the connections of another loop`(_ behaviour: StoreConformance.Behaviour) async throws {
        let database = try TestDatabase()
        let loops = Mutex<[ThreadHandoff<DescriptorPolling>]>([])
        try await behaviour.check { change in
            let store = try PostgresTokenStore(database, change: change)
            let opened = try store.openHandlesWithConnections()
            loops.withLock { $0 += opened }
            return store
        }
    }
}
#endif
