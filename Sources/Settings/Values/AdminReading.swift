/// Who may read the server's state at `admin.listen`.
package enum AdminReading: String, Sendable, CaseIterable {
    /// Whoever can connect.
    case open
    /// Only requesters with an admin key.
    case key
}
