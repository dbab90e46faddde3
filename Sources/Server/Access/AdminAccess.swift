package import HTTP
internal import Logging
package import Metrics
internal import Settings
internal import Synchronization
internal import System
package import TokenService

/// Who may use the administration over TCP: the admin keys, and who was refused for want of one.
///
/// Any thread.
package final class AdminAccess: Sendable {
    /// Nil without `admin.keys_file`.
    private let file: Mutex<AdminKeyFile?>
    private let log: RateLimitedLog
    package let refusals = Counters<AdminRefusal>()

    /// - Parameter path: `admin.keys_file`; if empty, there are no keys.
    init(path: String, _ logger: Logger) throws(AdminKeyFileError) {
        file = Mutex(path.isEmpty ? nil : try AdminKeyFile(path, AdminKeys.loadExisting))
        // Refused keys are logged as notices. As warnings, they would let anybody who can connect fill the list of recent warnings.
        log = RateLimitedLog(logger, .notice)
    }

    /// The keys in use; nil without `admin.keys_file`.
    package var keys: AdminKeys? { file.withLock { $0?.content } }

    /// Counts a request that is refused, and logs a wrong key.
    package func note(_ refusal: AdminRefusal, from address: IPAddress?) {
        refusals.add(refusal)
        guard refusal.isGuess else { return }
        log.log("\(address.map { "\($0)" } ?? "a program") sent an admin key that was refused: \(refusal.rawValue)")
    }

    // MARK: - Reloading

    /// The file at a path, which is read unless it is the present one; nil for an empty path.
    func file(at path: String) throws(AdminKeyFileError) -> AdminKeyFile? {
        if path.isEmpty { return nil }
        if let present, present.path == path { return present }
        return try AdminKeyFile(path, AdminKeys.loadExisting)
    }

    func use(_ file: AdminKeyFile?) {
        self.file.withLock { $0 = file }
    }

    /// The file in use.
    var present: AdminKeyFile? { file.withLock(\.self) }
}

/// Why a request to the administration is refused for want of an admin key; the words are in the metrics.
package enum AdminRefusal: String, Sendable, CaseIterable {
    /// There are no admin keys.
    case disabled
    case missing
    /// The credential is no key, or there are several.
    case malformed
    case unknown
    case expired
    /// The key has too small a scope.
    case scope

    /// Whether who meets it may be guessing keys.
    var isGuess: Bool {
        switch self {
        case .malformed, .unknown, .expired: true
        case .disabled, .missing, .scope: false
        }
    }
}
