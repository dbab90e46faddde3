/// The answer to a request to drain and stop.
package struct DrainReply: Codable, Sendable {
    package var draining: Bool
}
