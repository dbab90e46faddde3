/// Whether the server can serve clients: read and store tokens, and accept requests.
package struct ServiceReadiness: Codable, Sendable {
    package let isReady: Bool
    /// Why the server is not ready; empty when it is, and for those who may not know.
    package let reasons: [String]

    package init(reasons: [String]) {
        isReady = reasons.isEmpty
        self.reasons = reasons
    }

    private init(isReady: Bool) {
        self.isReady = isReady
        reasons = []
    }

    /// The same without the reasons, for requesters who may not know them.
    package var withoutReasons: ServiceReadiness { ServiceReadiness(isReady: isReady) }

    private enum CodingKeys: String, CodingKey {
        case isReady = "ready"
        case reasons
    }
}
