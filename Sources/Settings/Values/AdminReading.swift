/// Who reads the server's state at `admin.listen`.
package enum AdminReading: String, Sendable, CaseIterable {
    /// Whoever can connect.
    case open
    /// Only who shows an admin key.
    case key
}
