/// Looks at a store that this process has not opened, without changing anything.
package protocol StoreExaminer: Sendable {
    /// Where the store's database is.
    var path: String { get }
    /// The copy of a damaged WAL that is kept beside the store; nil if there is none.
    var damagedCopy: String? { get }

    /// Looks at the store; nil when there is none.
    func examine() throws(StoreOpenError) -> StoreExamination?
}

/// What can be found out about a closed store.
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
    package var damage: StoreOpenError?

    package init() {}
}

/// Looks at a store on other machines without opening it, and without changing anything.
package protocol StoreInspector: Sendable {
    /// Says what was found, good and bad; takes seconds, and blocks its thread meanwhile.
    func inspect() -> StoreInspection
}

/// What can be found out about a store on other machines.
package struct StoreInspection: Sendable {
    package var findings: [StoreFinding] = []
    /// The servers' agreement on keys; nil if it cannot be read, or no server has started yet.
    package var sealing: Sealing?

    package struct Sealing: Hashable, Sendable {
        /// The fingerprint of the key ring that seals; nil in the clear.
        package var keyRing: String?
        /// The numbers of the keys that rows may be sealed with.
        package var keyNumbers: Set<Int>

        package init(keyRing: String?, keyNumbers: Set<Int>) {
            self.keyRing = keyRing
            self.keyNumbers = keyNumbers
        }
    }

    package init() {}
}

/// One result of an inspection.
package struct StoreFinding: Hashable, Sendable {
    package enum State: Hashable, Sendable {
        case fine
        /// The store works, but may stop working, or could work better.
        case warning
        /// The store does not work, or may lose what it has acknowledged.
        case problem
    }

    package let state: State
    package let text: String
    /// What to do; empty if everything is fine.
    package let advice: String

    package static func fine(_ text: String) -> StoreFinding {
        StoreFinding(state: .fine, text: text, advice: "")
    }

    package static func warning(_ text: String, _ advice: String) -> StoreFinding {
        StoreFinding(state: .warning, text: text, advice: advice)
    }

    package static func problem(_ text: String, _ advice: String) -> StoreFinding {
        StoreFinding(state: .problem, text: text, advice: advice)
    }
}
