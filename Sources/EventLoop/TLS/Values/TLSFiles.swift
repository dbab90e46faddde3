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

    /// All pairs, the standard one first.
    package var pairs: [Pair] { [standard] + others }

    /// All files, in a fixed order; one that is both certificate and key is there twice.
    package var paths: [String] {
        pairs.flatMap { [$0.certificateChain, $0.privateKey] } + [clientAuthorities].compactMap(\.self)
    }

    /// The state of all files, in the order of `paths`.
    var stamps: [FileStamp?] { paths.map { FileStamp(path: $0) } }
}
