internal import JWT
internal import Settings
internal import TokenService

/// Checks the issuer's public keys, with which JWTs are verified.
enum KeySetCheck {
    private static let topic = "JWT keys"

    static func findings(_ settings: Settings, _ rights: Rights) -> [Finding] {
        guard settings.access.mode == .bearer else { return [] }
        let path = settings.access.bearer.keysFile
        if let refusal = rights.refusesReading(path, topic) { return [refusal] }
        return keys(path, JWTRules(settings.access.bearer))
    }

    private static func keys(_ path: String, _ rules: JWTRules) -> [Finding] {
        let keys: JWTKeySet
        do throws(JWTKeyFileError) {
            keys = try JWTVerifier.load(path, rules).keys
        } catch {
            return [.problem(topic, error)]
        }
        let others = keys.skipped.filter { !$0.reason.isFault }.map { "; \($0)" }.joined()
        return [.ok(topic, "\(path) has \(keys.count == 1 ? "1 key" : "\(keys.count) keys")\(others)")]
            + keys.skipped.filter(\.reason.isFault).map { key in
                .warning(topic, "\(path): \(key)", "ask the issuer for a correct key, or take it out of the file")
            }
    }
}
