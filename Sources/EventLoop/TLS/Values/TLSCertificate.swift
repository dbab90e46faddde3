/// What a server's certificate says of itself.
package struct TLSCertificate: Hashable, Sendable {
    /// The file that it was read from, as configured.
    package let path: String
    /// From when on it is valid, in seconds since 1970.
    package let start: Int64
    /// Until when it is valid, in seconds since 1970; the certificates that signed it outlive it.
    package let expiry: Int64
    /// The DNS names that it is for.
    package let names: [String]

    package init(path: String, start: Int64, expiry: Int64, names: [String]) {
        self.path = path
        self.start = start
        self.expiry = expiry
        self.names = names
    }
}
