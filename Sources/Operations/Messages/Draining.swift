/// The answer to a request to drain and stop.
package struct Draining: Codable, Sendable {
    package var draining: Bool
}
