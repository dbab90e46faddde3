#if PostgreSQL
import System
import Testing

@testable import PostgresStore

@Suite struct BlockingSessionTests {
    @Test func `values pass through a statement as they are`() throws {
        let database = try TestDatabase()
        let session = try database.session()
        var parameters = Parameters()
        parameters.append(Int64.min)
        parameters.append([0, 255, 39] as [UInt8])
        parameters.append(nil as Int64?)
        let row = try session.run(
            "SELECT $1::bigint, $2::bytea, $3::bigint, 'ä', true, 7::smallint", parameters, until: TestDatabase.deadline
        ) { (result) throws(PostgresError) in
            (
                result.integer(0, 0), result.bytes(0, 1), result.optionalInteger(0, 2), result.text(0, 3),
                result.integer(0, 4), result.integer(0, 5)
            )
        }
        #expect(row.0 == .min)
        #expect(row.1 == [0, 255, 39])
        #expect(row.2 == nil)
        #expect(row.3 == "ä")
        #expect(row.4 == 1)
        #expect(row.5 == 7)
    }

    @Test func `the first warning counts, and none that is about the crash of another process`() throws {
        let database = try TestDatabase()
        let session = try database.session()
        func warn(_ codes: String...) throws -> PostgresError? {
            for code in codes {
                let sql = "DO $$ BEGIN RAISE WARNING 'said' USING ERRCODE = '\(code)'; END $$"
                try session.run(sql, until: TestDatabase.deadline)
            }
            return session.connection.takeWarning()
        }
        #expect(try warn("57P02") == nil)
        #expect(try warn("01000", "57P02", "57P01") == .statement(SQLState("01000"), "said"))
        #expect(try warn("57P02", "57P01") == .statement(.adminShutdown, "said"))
        #expect(session.connection.takeWarning() == nil)
    }

    @Test func `a failed transaction leaves nothing, and the session goes on`() throws {
        let database = try TestDatabase()
        let session = try database.session()
        #expect(throws: PostgresError.self) {
            try session.transaction(until: TestDatabase.deadline) { () throws(PostgresError) in
                try session.run("INSERT INTO sealing_key VALUES (7, '')", until: TestDatabase.deadline)
                try session.run("INSERT INTO sealing_key VALUES (7, '')", until: TestDatabase.deadline)
            }
        }
        #expect(try database.number("SELECT count(*) FROM sealing_key WHERE number = 7") == 0)
        try session.run("INSERT INTO sealing_key VALUES (7, '')", until: TestDatabase.deadline)
        #expect(try database.number("SELECT count(*) FROM sealing_key WHERE number = 7") == 1)
    }

    @Test func `a statement that takes too long fails at its deadline`() throws {
        let database = try TestDatabase()
        let session = try database.session()
        #expect(throws: PostgresError.timedOut("\(session.connection.address) has not answered in time")) {
            try session.run("SELECT pg_sleep(60)", until: .now + Nanoseconds(.milliseconds(50)))
        }
    }
}
#endif
