/// Where a user's token is kept: on the device, on the server, or first there and then here.
///
/// The difference between *none* and *unknown* is the contract: `fetch` returns nil only if there is surely no token, and
/// throws if that cannot be known, for example without a network. Nothing in this library takes unknown for signed out, and
/// an implementation must not either.
public protocol TokenCaching: Sendable {
    /// The user's token.
    ///
    /// - Returns: nil: there is surely none.
    /// - Throws: An error if it is unknown whether there is one.
    func fetch() async throws -> TokenInformation?

    /// Stores a token in place of the one that was there.
    ///
    /// - Throws: An error if it is not certain that the token is stored.
    func cache(_ information: TokenInformation) async throws

    /// Removes the token; it is no error if there is none.
    ///
    /// - Throws: An error if it is not certain that it is gone.
    func clear() async throws
}
