/// What the file of the authorities for clients' certificates holds.
package struct TLSClientAuthorities: Hashable, Sendable {
    package struct Authority: Hashable, Sendable {
        /// The subject, such as `CN=Devices,O=Example`.
        package let name: String
        /// In seconds since 1970.
        package let expiry: Int64
    }

    /// As configured.
    package let path: String
    /// The authorities that are trusted.
    package internal(set) var taken: [Authority] = []
    /// Where the blocks of PEM begin that are no certificate or cannot be read, and why: `line 12 (it is no certificate)`.
    package internal(set) var leftOut: [String] = []
}
