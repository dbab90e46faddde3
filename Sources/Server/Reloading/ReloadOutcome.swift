/// The result of a reload.
package struct ReloadOutcome: Codable, Sendable {
    /// Whether the settings that can change without a restart are now as the files have them.
    package let isReloaded: Bool
    /// Which settings have changed and which need a restart, or why nothing has changed.
    package let outcome: String

    private enum CodingKeys: String, CodingKey {
        case isReloaded = "reloaded"
        case outcome
    }
}
