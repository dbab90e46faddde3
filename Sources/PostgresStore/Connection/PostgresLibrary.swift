#if PostgreSQL
internal import CPostgres

/// The client library that the store uses.
package enum PostgresLibrary {
    /// For example `15.8`.
    package static var version: String { version(of: Int(PQlibVersion())) }

    /// A version in the number format of the library and of servers since 10: two digits or more, and four for the minor version
    /// (postgresql.org/docs/current/libpq-misc.html).
    static func version(of number: Int) -> String { "\(number / 10_000).\(number % 10_000)" }

    /// The names of all parameters of a connection.
    package static var parameters: Set<String> {
        guard let options = unsafe PQconndefaults() else { return [] }
        defer { unsafe PQconninfoFree(options) }
        var (names, option) = unsafe (Set<String>(), options)
        while let keyword = unsafe option.pointee.keyword {
            names.insert(unsafe String(cString: keyword))
            unsafe option += 1
        }
        return names
    }
}
#endif
