/// The software that a store runs on.
package struct StoreSoftware: Hashable, Sendable {
    /// For example `SQLite`.
    package let name: String
    /// For example `3.40.1`.
    package let version: String

    package init(name: String, version: String) {
        self.name = name
        self.version = version
    }
}
