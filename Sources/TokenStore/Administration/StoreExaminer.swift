/// Looks at a store that this process has not opened, without changing anything.
package protocol StoreExaminer: Sendable {
    /// Where the store's database is.
    var path: String { get }
    /// Whether this user may not read the store.
    var isUnreadable: Bool { get }
    /// The process that uses the store from another data folder; nil if there is none, or it cannot be told.
    var holder: Int? { get }
    /// Copies of damaged files that are kept beside the store.
    var keptCopies: [String] { get }

    /// Looks at the store; nil when there is none.
    func examine() throws(StoreOpenError) -> StoreExamination?
}

/// What can be told of a store while it is closed.
package struct StoreExamination: Sendable {
    /// Nil if the database itself holds nothing yet.
    package var schemaVersion: Int?
    /// As of the last checkpoint.
    package var tokens = 0
    /// Whether it has no row of any kind, as of the last checkpoint.
    package var isEmpty = true
    package var databaseBytes = 0
    /// More than 0 after a crash; the next start moves the WAL into the database.
    package var walBytes = 0
    /// The fingerprint of the key ring that has sealed the store; nil in the clear.
    package var keyRing: String?
    /// The numbers of the keys that rows are sealed with, as of the last checkpoint and as far as a short look shows.
    package var keyNumbers: Set<Int> = []
    /// What is damaged; nil if nothing is.
    package var damage: Damage?

    package struct Damage: Hashable, Sendable {
        package let text: String
        package let advice: String

        package init(_ text: String, advice: String) {
            self.text = text
            self.advice = advice
        }
    }

    package init() {}
}
