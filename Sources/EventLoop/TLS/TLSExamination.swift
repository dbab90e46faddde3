/// What a certificate and its key tell when they are read.
package struct TLSExamination: Sendable {
    /// When the certificate counts, in seconds since 1970.
    package let start: Int64
    package let expiry: Int64
    /// The DNS names that it is for.
    package let names: [String]

    /// Reads the files as a listener does; blocks for as long as that takes.
    package init(_ pair: TLSFiles.Pair, clientAuthorities: String?) throws(TLSConfigurationError) {
        let context = try TLSServerContext(pair, clientAuthorities: clientAuthorities)
        start = context.start
        expiry = context.expiry
        names = context.certificateNames
    }
}
