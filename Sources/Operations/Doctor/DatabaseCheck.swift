internal import Settings
internal import TokenStore

/// Checks a store on other machines, which is looked at from here whether or not a server runs.
struct DatabaseCheck {
    private let inspection: StoreInspection
    private static let topic = "Database"
    private static let ringTopic = "Key ring"

    /// Looks at the database; takes seconds.
    init(_ inspector: any StoreInspector) {
        inspection = inspector.inspect()
    }

    init(_ inspection: StoreInspection) {
        self.inspection = inspection
    }

    var findings: [Finding] {
        inspection.findings.map { found in
            switch found.state {
            case .fine: .ok(Self.topic, found.text)
            case .warning: .warning(Self.topic, found.text, found.advice)
            case .problem: .problem(Self.topic, found.text, found.advice)
            }
        }
    }

    /// The fingerprint of the key ring that the database was sealed with; nil in the clear, or if it is not known.
    var keyRing: String? { inspection.sealing?.keyRing }

    /// What is wrong with the keys of the database.
    ///
    /// - Parameters:
    ///   - isSealed: Whether sealing is on in the settings.
    ///   - numbers: Those of the keys that are here; nil if the ring cannot be read.
    func keyFindings(isSealed: Bool, numbers: [Int]?) -> [Finding] {
        guard let sealing = inspection.sealing else { return [] }
        switch (isSealed, sealing.keyRing != nil) {
        case (true, false):
            return [
                .problem(
                    Self.topic, "the database holds tokens in the clear, and sealing is on",
                    "set sealing.enabled to off, or export the tokens and import them into a new database")
            ]
        case (false, true):
            return [
                .problem(
                    Self.topic, "the tokens in the database are sealed, and sealing is off",
                    "set sealing.enabled to on")
            ]
        case (false, false): return []
        case (true, true): break
        }
        guard let numbers else { return [] }
        let missing = sealing.keyNumbers.filter { !numbers.contains($0) }.sorted()
        return missing.map { number in
            .problem(
                Self.ringTopic, "key \(number) is missing, with which tokens in the database are sealed",
                "copy the key ring from a server that has the key"
            )
        }
    }
}
