import Foundation

/// A folder of a test's own, removed when the test is over.
package final class TemporaryDirectory: Sendable {
    package let path: String

    /// - Parameter parent: Where it lies; nil for the system's folder of temporary files.
    package init(in parent: String? = nil) {
        path = (parent.map { $0 + "/" } ?? NSTemporaryDirectory()) + "token-cache-test-" + UUID().uuidString
        guard mkdir(path, 0o755) == 0 else { preconditionFailure("\(path) can be made") }
    }

    deinit {
        try? FileManager.default.removeItem(atPath: path)
    }
}
