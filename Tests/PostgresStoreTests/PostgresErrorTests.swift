#if PostgreSQL
import Testing

@testable import PostgresStore

struct PostgresErrorTests {
    @Test func `the code of an error that comes while connecting is found`() {
        let error = PostgresError(
            refusal: """
                connection to server at "127.0.0.1", port 5432 failed: FATAL:  28P01: password authentication failed for user "app"
                LOCATION:  auth_failed, auth.c:335

                """)
        #expect(error.state == .wrongPassword)
        let text = """
            connection to server at "127.0.0.1", port 5432 failed: FATAL: password authentication failed for user "app" \
            (SQLSTATE 28P01); check the password
            """
        #expect("\(error)".hasPrefix(text))
        #expect(!"\(error)".contains("auth.c"))
        #expect(!error.mayRetry)
    }

    @Test func `of several attempts the last one's code counts`() {
        let error = PostgresError(
            refusal: """
                connection to server at "db1" (10.0.0.1), port 5432 failed: FATAL:  28000: no pg_hba.conf entry, SSL encryption
                LOCATION:  ClientAuthentication, auth.c:540
                connection to server at "db1" (10.0.0.1), port 5432 failed: FATAL:  57P03: the database system is starting up
                LOCATION:  ProcessStartupPacket, postmaster.c:2360
                """)
        #expect(error.state == SQLState("57P03"))
        #expect(error.mayRetry)
    }

    @Test(arguments: [
        "connection to server at \"127.0.0.1\", port 1 failed: Connection refused\n\tIs the server running on that host?\n",
        "could not translate host name \"db1\" to address: Name or service not known\n",
        "connection failed:  THIS: is no code", "",
    ])
    func `what the library says itself has no code`(message: String) {
        let error = PostgresError(refusal: message)
        #expect(error.state == nil)
        #expect(error.mayRetry)
        #expect(!"\(error)".isEmpty)
    }

    @Test(arguments: [
        ("SSL error: certificate verify failed", "the server's certificate has expired, or"),
        ("fe_sendauth: no password supplied", "check the password: in libpq's passfile, PGPASSWORD or"),
    ])
    func `what the library says too briefly is explained`(message: String, advice: String) {
        let error = PostgresError(refusal: "connection to server failed: \(message)\n")
        #expect("\(error)".contains("\(message); \(advice)"))
    }

    @Test(arguments: [
        "SSL error: certificate verify failed\n", "server certificate for \"a\" does not match host name \"b\"",
        "root certificate file \"/a\" does not exist", "fe_sendauth: no password supplied",
        "server does not support SSL, but SSL was required",
        "private key file \"/a\" has group or world access; file must have permissions u=rw (0600) or less",
        "invalid sslmode value: \"bogus\"", "invalid integer value \"abc\" for connection option \"connect_timeout\"",
    ])
    func `settings that do not fit do not mend themselves`(message: String) {
        let error = PostgresError(refusal: "connection to server at \"127.0.0.1\", port 1 failed: \(message)")
        #expect(!error.mayRetry)
        #expect(error.endsConnection)
    }

    @Test func `a role that does not exist is refused with its code`() throws {
        let database = try TestDatabase()
        let error = #expect(throws: PostgresError.self) { _ = try database.cluster.connection(to: "no_such_database") }
        #expect(error?.state == .missingDatabase)
        #expect("\(error!)".contains("make it"))
    }
}
#endif
