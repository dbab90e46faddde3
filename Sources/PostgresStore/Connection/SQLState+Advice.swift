#if PostgreSQL
extension SQLState {
    /// What an operator can do about an error with this code; nil where the server's message says all there is to say.
    var advice: String? {
        switch self {
        case .wrongPassword:
            "check the password: in libpq's passfile, PGPASSWORD or the credential token-cache.postgresql-password"
        case .wrongAuthorization: "check the role in store.url, and the server's pg_hba.conf"
        case .missingDatabase: "check the name of the database in store.url, or make it"
        case .tooManyConnections:
            "raise max_connections there, or lower store.connections, of which each loop of each server takes as many"
        case .diskFull: "free room on the disk of that server, or enlarge it"
        case .missingTable, .missingColumn: "run token-cache migrate"
        case .foreignKeyViolation: "the key that has sealed the row was retired meanwhile; try again"
        case .noPrivilege: "grant the role of this server what it needs, as token-cache migrate --server-role does"
        case .missingStatement, .duplicateStatement:
            "a pooler in between shares connections among clients: set pool_mode = session there"
        default: nil
        }
    }
}
#endif
