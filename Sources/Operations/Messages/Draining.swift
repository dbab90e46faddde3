/// The answer to having the server stop.
package struct Draining: Codable, Sendable {
    package var draining: Bool
}
