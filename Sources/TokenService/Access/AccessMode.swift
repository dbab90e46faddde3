/// How a request shows which user it is for.
package enum AccessMode: String, Sendable, CaseIterable {
    /// The user is whoever `unique_id` says, as with `token.php`: whoever knows or guesses an id reads and overwrites its token.
    case open
    /// A session that was made for the user, in `unique_id` or in the header Authorization.
    case session
    /// A claim of a signed JWT.
    case bearer
    /// A header that a trusted proxy sets after it has authenticated the user.
    case header
    /// A name in the certificate of the client.
    case certificate

    /// What mode `open` means where other machines reach the server.
    ///
    /// - Parameter listeners: The addresses that they reach.
    package static func openWarning(_ listeners: [String]) -> String {
        """
        access.mode is open, and other machines reach \(listeners.joined(separator: ", ")): whoever knows or guesses an id \
        reads and overwrites its token
        """
    }
}
