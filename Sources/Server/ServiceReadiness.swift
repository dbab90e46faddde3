/// Whether the server can serve clients: read and store tokens, and accept requests.
package struct ServiceReadiness: Codable, Sendable {
    package let isReady: Bool
    /// Why the server is not ready; empty when it is.
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
