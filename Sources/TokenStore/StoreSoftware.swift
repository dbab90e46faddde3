/// The software that a store runs on.
package struct StoreSoftware: Hashable, Sendable {
    /// For example `SQLite`.
    package let name: String
    /// For example `3.40.1`.
    package let version: String
    /// A known defect of this version; nil for none.
    package let defect: Defect?

    /// A defect, and what an operator does about it.
    package struct Defect: Hashable, Sendable {
        package let text: String
        package let advice: String

        package init(_ text: String, advice: String) {
            self.text = text
            self.advice = advice
        }
    }

    package init(name: String, version: String, defect: Defect? = nil) {
        self.name = name
        self.version = version
        self.defect = defect
    }
}
