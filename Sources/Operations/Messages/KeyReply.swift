/// The answer to the question whose key a request shows.
struct KeyReply: Codable {
    /// The key's name; of a process on the control socket, which needs no key, its user.
    let name: String
    /// `steer` or `read`.
    let scope: String
}
