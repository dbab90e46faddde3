#if PostgreSQL
import Testing

@testable import PostgresStore

@Suite struct PostgresLibraryTests {
    @Test func `the version of the library is that of a release`() throws {
        #expect(PostgresLibrary.version(of: 150_018) == "15.18")
        // Pipeline mode came with 14.
        let major = try #require(Int(PostgresLibrary.version.prefix { $0 != "." }))
        #expect(major >= 14)
    }
}
#endif
