#if PostgreSQL
import System
import Testing

@testable import PostgresStore

@Suite struct BlockingConnectionTests {
    @Test func `values pass through a statement as they are`() throws {
        let result = try TestDatabase().connection().run(
            "SELECT $1::bigint, $2::bytea, $3::bigint, $4::text, true, 7::smallint, $5::bytea[], $6::bigint[] = '{}'",
            [
                .bigint(.min), .bytea([0, 255, 39]), .bigint(nil), .text("ä"), .byteas([[7], nil]),
                .bigints([]),
            ])
        #expect(result.integer(0, 0) == .min && result.bytes(0, 1) == [0, 255, 39])
        #expect(result.optionalInteger(0, 2) == nil && result.text(0, 3) == "ä")
        #expect(result.integer(0, 4) == 1 && result.integer(0, 5) == 7 && result.integer(0, 7) == 1)
        #expect(
            result.bytes(0, 6) == [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 17, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 7] + [
                255, 255, 255, 255,
            ])
    }

    @Test(arguments: ["01000", "57P01", "57P02"])
    func `a warning that does not come from the wait for a standby says nothing of the commit`(code: String) throws {
        let connection = try TestDatabase().connection()
        try connection.commit("DO $$ BEGIN RAISE WARNING 'said' USING ERRCODE = '\(code)'; END $$")
    }

    @Test func `a failed transaction leaves nothing, and the session goes on`() throws {
        let database = try TestDatabase()
        let connection = try database.connection()
        #expect(throws: PostgresError.self) {
            try connection.transaction { () throws(PostgresError) in
                try connection.run("INSERT INTO sealing_key VALUES (7, '')")
                try connection.run("INSERT INTO sealing_key VALUES (7, '')")
            }
        }
        #expect(try database.number("SELECT count(*) FROM sealing_key WHERE number = 7") == 0)
        try connection.run("INSERT INTO sealing_key VALUES (7, '')")
        #expect(try database.number("SELECT count(*) FROM sealing_key WHERE number = 7") == 1)
    }

    @Test func `a statement that takes too long fails at its deadline`() throws {
        let connection = try TestDatabase().connection().until(.now + Nanoseconds(.milliseconds(50)))
        #expect(throws: PostgresError.timedOut("\(connection.postgres.address) has not answered in time")) {
            try connection.run("SELECT pg_sleep(60)")
        }
    }
}
#endif
