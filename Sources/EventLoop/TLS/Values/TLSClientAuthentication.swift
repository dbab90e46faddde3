/// Whether the clients of a listener show certificates in the handshake.
package enum TLSClientAuthentication: Sendable {
    case none
    /// Clients without a certificate are let in; a certificate that is not valid ends the handshake.
    case optional
    case required
    /// `required` while the files of the context name authorities, otherwise `none`.
    case requiredByAuthorities
}
