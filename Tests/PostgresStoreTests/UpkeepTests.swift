#if PostgreSQL
import StoreConformance
import Testing

@testable import PostgresStore
@testable import TokenStore

/// How a server that gets no requests finds out that they would no longer fail.
@Suite struct UpkeepTests {
    @Test(arguments: [true, false])
    func `a trial that succeeds ends the trouble, and leaves nothing behind`(isWrite: Bool) async throws {
        let database = try TestDatabase()
        let events = TestAdministration.Events()
        let store = try PostgresTokenStore(database, report: { events.add($0) })
        defer { store.close() }
        let handle = try await WaitingHandle.open(store)
        try await handle.put("1", under: "a")
        store.state.noteFailure(StoreFault("the disk was full"), isWrite: isWrite)
        let end = isWrite ? StoreEvent.writesRecovered(failed: 1) : .readsRecovered(failed: 1)
        while !events.all.contains(end) { try await Task.sleep(for: .milliseconds(5)) }
        #expect(try database.number("SELECT count(*) FROM token") == 1)
        #expect(try await handle.get("a") == "1")
    }

    @Test func `a trial that fails leaves the server as it is`() async throws {
        let database = try TestDatabase()
        let store = try PostgresTokenStore(database)
        defer { store.close() }
        let handle = try await WaitingHandle.open(store)
        try await handle.put("1", under: "a")
        try database.sql("CREATE TABLE trials (number serial)")
        // A rollback does not give back the numbers of a sequence.
        try database.sql(
            """
            CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN PERFORM nextval('trials_number_seq'); RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $$
            """)
        try database.sql("CREATE TRIGGER refuse BEFORE INSERT ON token FOR EACH ROW EXECUTE FUNCTION refuse()")
        await #expect(throws: StoreError.self) { try await handle.put("2", under: "a") }
        while try database.number("SELECT last_value FROM trials_number_seq") ?? 0 < 4 {
            try await Task.sleep(for: .milliseconds(20))
        }
        guard case .write(let fault) = store.fault else {
            Issue.record("the fault is \(String(describing: store.fault))")
            return
        }
        #expect(fault.cause == .diskFull)
        try database.sql("DROP TRIGGER refuse ON token")
        while store.fault != nil { try await Task.sleep(for: .milliseconds(5)) }
        try await handle.put("3", under: "a")
    }
}
#endif
