/// What came of a reload.
package struct ReloadOutcome: Codable, Sendable {
    /// Whether what can change without a restart is as the files have it now.
    package let isReloaded: Bool
    /// What has changed and what waits for a restart, or why nothing has changed.
    package let outcome: String

    private enum CodingKeys: String, CodingKey {
        case isReloaded = "reloaded"
        case outcome
    }
}
