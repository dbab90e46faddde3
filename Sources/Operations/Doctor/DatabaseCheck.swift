internal import Server
internal import Settings
internal import TokenStore

/// Checks a store on other machines: connects to it from here, whether or not a server runs.
struct DatabaseCheck {
    private let inspection: StoreInspection
    private static let topic = "Database"
    private static let ringTopic = "Key ring"

    /// Inspects the database, which takes seconds.
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
    ///   - numbers: The numbers of the keys in this machine's key ring; nil if it cannot be read.
    func keyFindings(isSealed: Bool, numbers: [Int]?) -> [Finding] {
        guard let sealing = inspection.sealing else { return [] }
        guard isSealed == (sealing.keyRing != nil) else {
            return [
                isSealed
                    ? .problem(
                        Self.topic, "the database holds tokens in the clear, and sealing is on",
                        "set sealing.enabled to off, or copy the tokens into a new database with token-cache copy")
                    : .problem(
                        Self.topic, "the tokens in the database are sealed, and sealing is off",
                        "set sealing.enabled to on")
            ]
        }
        guard isSealed, let numbers else { return [] }
        let missing = sealing.keyNumbers.filter { !numbers.contains($0) }.sorted()
        return missing.map { number in
            .problem(
                Self.ringTopic, "key \(number) is missing, with which tokens in the database are sealed",
                "copy the key ring from a server that has the key"
            )
        }
    }
}
