/// What can be found out about a closed store.
package struct StoreExamination: Sendable {
    /// Nil if the database itself holds nothing yet.
    package var schemaVersion: Int?
    /// As of the last checkpoint.
    package var tokens = 0
    package var databaseBytes = 0
    /// More than 0 after a crash; the next start moves the WAL into the database.
    package var walBytes = 0
    /// When the last token was stored, or up to a minute later, as of the last checkpoint; nil if none ever was.
    package var lastWrite: String?
    /// How its rows are sealed, as of the last checkpoint and as far as a short look shows; nil if it has no row of any kind.
    package var sealing: StoreSealing?
    /// What the walk over all rows has found, as of the last checkpoint; nil before the first one.
    package var walk: WalkState?
    /// What is damaged; nil if nothing is.
    package var damage: StoreOpenError?

    package init() {}
}

/// What can be found out about a store on other machines.
package struct StoreInspection: Sendable {
    package var findings: [Finding] = []
    /// The servers' agreement on keys; nil if it cannot be read, or no server has started yet.
    package var sealing: StoreSealing?

    package init() {}
}

/// How the rows of a store are sealed.
package struct StoreSealing: Hashable, Sendable {
    /// The fingerprint of the key ring.
    package let keyRing: String
    /// The numbers of the keys that rows may be sealed with.
    package let keyNumbers: Set<Int>

    package init(keyRing: String, keyNumbers: Set<Int>) {
        self.keyRing = keyRing
        self.keyNumbers = keyNumbers
    }
}

/// The result of one check of the doctor.
package struct Finding: Encodable, Hashable, Sendable {
    package enum State: String, Encodable, Sendable {
        case ok
        /// The server works, but may stop working, or could work better.
        case warning
        /// The server cannot work, or is not secure.
        case problem
    }

    /// The heading that the finding is printed under.
    package let topic: String
    package let state: State
    package let text: String
    /// What to do; empty when the state is `ok`.
    package let advice: String

    package static func ok(_ topic: String, _ text: String) -> Finding {
        Finding(topic: topic, state: .ok, text: text, advice: "")
    }

    package static func warning(_ topic: String, _ text: String, _ advice: String) -> Finding {
        Finding(topic: topic, state: .warning, text: text, advice: advice)
    }

    package static func problem(_ topic: String, _ text: String, _ advice: String) -> Finding {
        Finding(topic: topic, state: .problem, text: text, advice: advice)
    }

    /// A problem from an error whose text says after a semicolon what to do.
    package static func problem(_ topic: String, _ error: some CustomStringConvertible) -> Finding {
        let parts = parts(of: "\(error)")
        return problem(topic, parts.text, parts.advice)
    }

    /// A warning from a text that says after a semicolon what to do.
    package static func warning(_ topic: String, _ text: String) -> Finding {
        let parts = parts(of: text)
        return warning(topic, parts.text, parts.advice)
    }

    private static func parts(of text: String) -> (text: String, advice: String) {
        let parts = text.split(separator: "; ", maxSplits: 1).map(String.init)
        return (parts[0], parts.count == 2 ? parts[1] : "correct that, and run the doctor again")
    }
}
