package import HTTP
internal import Logging
package import Metrics
internal import Settings
internal import Synchronization
internal import System
package import TokenService

/// Who may use the administration over TCP: the admin keys, and the failures of clients without a valid one.
///
/// Any thread, except for `note`.
package final class AdminAccess: Sendable {
    /// Nil without `admin.keys_file`.
    private let file: Mutex<AdminKeyFile?>
    private let failures = FailureLimiter(.standard)
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

    /// Counts a request that is refused, on the administration's thread.
    ///
    /// - Returns: If its address has had too many wrong keys, how long to wait before another one.
    package func note(_ refusal: AdminRefusal, from address: IPAddress?) -> Duration? {
        guard refusal.isGuess else {
            refusals.add(refusal)
            return nil
        }
        log.log("\(address.map { "\($0)" } ?? "a program") sent an admin key that was refused: \(refusal.rawValue)")
        let wait = failures.noteFailure(from: address, at: .now)
        refusals.add(wait == nil ? refusal : .limited)
        return wait
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
    /// The address has shown too many wrong keys.
    case limited

    /// Whether who meets it may be guessing keys.
    var isGuess: Bool {
        switch self {
        case .malformed, .unknown, .expired: true
        case .disabled, .missing, .scope, .limited: false
        }
    }
}
