/// Whether the server can do what it is there for.
package struct ServiceReadiness: Codable, Sendable {
    package let isReady: Bool
    /// Why it cannot; empty when it can.
    package let reasons: [String]

    package init(reasons: [String]) {
        isReady = reasons.isEmpty
        self.reasons = reasons
    }

    private enum CodingKeys: String, CodingKey {
        case isReady = "ready"
        case reasons
    }
}
