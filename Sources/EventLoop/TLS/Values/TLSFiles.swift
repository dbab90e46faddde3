internal import System

/// The files that a TLS listener is configured with, all in PEM.
package struct TLSFiles: Hashable, Sendable {
    /// A certificate with its intermediate ones, and the key it belongs to.
    package struct Pair: Hashable, Sendable {
        /// The server's certificate first, then each certificate that signed the previous one; the root may be missing.
        package let certificateChain: String
        /// Not encrypted.
        package let privateKey: String

        package init(certificateChain: String, privateKey: String) {
            self.certificateChain = certificateChain
            self.privateKey = privateKey
        }
    }

    /// For clients that ask for no server name, or for one that no certificate has.
    package let standard: Pair
    /// Chosen by the names in their certificates; a name that repeats belongs to the earlier pair.
    package let others: [Pair]
    /// The authorities of which one must have signed a client's certificate; nil if no client shows one.
    package let clientAuthorities: String?

    package init(standard: Pair, others: [Pair] = [], clientAuthorities: String? = nil) {
        self.standard = standard
        self.others = others
        self.clientAuthorities = clientAuthorities
    }

    var pairs: [Pair] { [standard] + others }

    /// The state of all files, in a fixed order.
    var stamps: [FileStamp?] {
        let paths = pairs.flatMap { [$0.certificateChain, $0.privateKey] } + [clientAuthorities].compactMap(\.self)
        return paths.map { FileStamp(path: $0) }
    }
}
