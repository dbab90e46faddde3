internal import EventLoop
internal import Settings

extension TLSClientAuthentication {
    /// Whether the clients of a listener show certificates, as its entry says.
    ///
    /// If no entry says anything, all clients do where there are authorities.
    ///
    /// - Parameters:
    ///   - address: The listener's entry.
    ///   - listen: All entries.
    init(of address: ListenAddress, among listen: [ListenAddress]) {
        switch address.clientCertificate {
        case .required: self = .required
        case .optional: self = .optional
        case nil: self = listen.contains { $0.clientCertificate != nil } ? .none : .requiredByAuthorities
        }
    }
}
