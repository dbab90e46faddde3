/// Looks at a store on other machines without opening it, and without changing anything.
package protocol StoreInspector: Sendable {
    /// Says what was found, good and bad; takes seconds, and blocks its thread meanwhile.
    func inspect() -> StoreInspection
}

/// What can be told of a store on other machines.
package struct StoreInspection: Sendable {
    package var findings: [StoreFinding] = []
    /// What servers have agreed on; nil if it cannot be read, or no server has started yet.
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
