internal import Audit
package import JWT
internal import Settings
internal import Synchronization
internal import System
package import TokenService
internal import TokenStore

/// What all loops share to find out who a request is from: caches, limits and the files of keys.
///
/// Any thread.
package final class AccessResources: Sendable {
    /// The sessions that were used recently.
    package let sessions: SessionCache
    /// The failures of addresses.
    package let failures: FailureLimiter
    /// Nil without an API.
    package let apiKeys: APIKeyFile?
    /// The keys of the JWTs' issuer; nil in other modes than `bearer`.
    package let jwtKeys: JWTKeyFile?
    /// Nil without `audit.file`.
    let audit: AuditLog?
    /// One for each kind of file, so that they do not wait for one another.
    let readers = Dictionary(uniqueKeysWithValues: KeyFile.allCases.map { ($0, FileReader($0.rawValue)) })
    /// Changes of keys that could not be recorded yet.
    let unrecorded = Mutex<[AuditEvent]>([])

    /// - Parameters:
    ///   - settings: Those of the start.
    ///   - keepsSessions: Whether the store reports the end of every session; otherwise each request asks the store.
    ///   - audit: Nil without `audit.file`.
    init(_ settings: Settings, keepsSessions: Bool = true, audit: AuditLog? = nil) throws(StartError) {
        self.audit = audit
        // A session takes a tenth of what an answer takes.
        sessions = SessionCache(limit: keepsSessions ? settings.cacheLimit / 4 : 0)
        failures = FailureLimiter(settings.access.failures)
        do throws(APIKeyFileError) {
            let path = settings.access.apiKeysFile
            apiKeys = path.isEmpty ? nil : try APIKeyFile(path, APIKeys.loadExisting)
        } catch {
            throw .access("\(error)")
        }
        do throws(JWTKeyFileError) {
            if settings.access.mode == .bearer {
                let rules = JWTRules(settings.access.bearer)
                jwtKeys = try JWTKeyFile(settings.access.bearer.keysFile) { path throws(JWTKeyFileError) in
                    try JWTVerifier.load(path, rules)
                }
            } else {
                jwtKeys = nil
            }
        } catch {
            throw .access("the keys of JWTs in access.bearer.keys_file: \(error)")
        }
    }
}
