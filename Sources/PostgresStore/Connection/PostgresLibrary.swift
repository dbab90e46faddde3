#if PostgreSQL
internal import CPostgres

/// The client library that the store uses.
enum PostgresLibrary {
    /// For example `15.8`.
    static var version: String { version(of: Int(PQlibVersion())) }

    /// A version in the number format of the library and of servers since 10: two digits or more, and four for the minor version
    /// (postgresql.org/docs/current/libpq-misc.html).
    static func version(of number: Int) -> String { "\(number / 10_000).\(number % 10_000)" }
}
#endif
