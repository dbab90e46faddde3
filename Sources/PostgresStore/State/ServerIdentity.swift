#if PostgreSQL
/// Tells one server from another, and from itself before it was promoted.
struct ServerIdentity: Hashable, Sendable {
    /// Host and port.
    let address: String
    /// 0 while it follows another server.
    let timeline: Int64
}
#endif
