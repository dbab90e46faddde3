internal import HTTP
internal import System
internal import TokenStore

/// Refuses requests: counts why, limits those who guess, and has refusals and what was done written to the audit log.
///
/// Belongs to one loop's thread.
package final class AccessGuard {
    /// Shared by all loops; nil without a limit.
    private let limiter: FailureLimiter?
    /// Nil without an audit log.
    private let trail: AuditTrail?
    private let note: (AccessFailure) -> Void

    /// - Parameters:
    ///   - limiter: Counts failures by address; nil for no limit.
    ///   - trail: The loop's; nil without an audit log.
    ///   - note: Counts each failure.
    package init(limiter: FailureLimiter?, trail: AuditTrail?, note: @escaping (AccessFailure) -> Void) {
        self.limiter = limiter
        self.trail = trail
        self.note = note
    }

    // MARK: - Refusals

    /// The answer to a request that is refused.
    func deny(
        _ failure: AccessFailure, in place: AccessFailure.Place, isWrite: Bool, from address: IPAddress?,
        _ requestID: RequestID
    ) -> Answer {
        if failure.isGuess, let limited = limit(address) { return .now(limited) }
        note(failure)
        let answer = Answer.now(failure.response(in: place, isWrite: isWrite))
        return answer
    }

    /// Counts a failure of an address.
    ///
    /// - Returns: The answer with status 429, if there were too many; nil if the failure is answered as such.
    func limit(_ address: IPAddress?) -> Response? {
        guard let wait = limiter?.noteFailure(from: address, at: MonotonicTime.now) else { return nil }
        note(.limited)
        let seconds = max(1, Int(wait.components.seconds) + (wait.components.attoseconds > 0 ? 1 : 0))
        return AccessFailure.limited.response(in: .field, isWrite: false, wait: seconds)
    }
}

// MARK: - Audit log

extension AccessGuard {
    /// Whether an action is written in the audit log.
    func records(_ action: AuditAction) -> Bool { false }

    /// False if an action has to be recorded and cannot be.
    func canRecord(_ action: AuditAction) -> Bool { true }

    func names(of session: UserSession) -> AuditNames? { nil }

    func recorded(
        _ answer: Answer, _ action: AuditAction, by grant: Grant, from address: IPAddress?, _ requestID: RequestID
    ) -> Answer { answer }

    func recorded(
        _ answer: Answer, _ action: AuditAction, byKey name: String, _ user: [UInt8]?, _ session: SessionKey?,
        from address: IPAddress?, _ requestID: RequestID
    ) -> Answer { answer }
}
