internal import Audit
internal import HTTP
internal import System
internal import TokenStore

/// Refuses requests: counts why, limits those who guess, and has refusals and what was done written to the audit log.
///
/// Belongs to one loop's thread.
package final class AccessGuard {
    /// Shared by all loops; nil without a limit of failures.
    private let limiter: FailureLimiter?
    /// Nil without an audit log.
    private let trail: AuditTrail?
    private let note: (AccessFailure) -> Void

    /// - Parameters:
    ///   - limiter: Counts failures by address; nil without a limit.
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
        if failure.isGuess { noteGuess(from: address) }
        note(failure)
        let answer = Answer.now(failure.response(in: place, isWrite: isWrite))
        return recorded(answer, failure, in: place, isWrite: isWrite, from: address, requestID)
    }

    /// Whether addresses are limited at all.
    var limitsFailures: Bool { limiter != nil }

    /// The answer with status 429 to whatever an address sends that has failed too often; nil if it is served.
    func limited(_ address: IPAddress?) -> Response? {
        guard let wait = limiter?.wait(for: address, at: MonotonicTime.now) else { return nil }
        note(.limited)
        let seconds = max(1, Int(wait.components.seconds) + (wait.components.attoseconds > 0 ? 1 : 0))
        return AccessFailure.limited.response(in: .field, isWrite: false, wait: seconds)
    }

    /// Counts a failure of an address.
    func noteGuess(from address: IPAddress?) {
        limiter?.noteFailure(from: address, at: MonotonicTime.now)
    }
}

// MARK: - Audit log

extension AccessGuard {
    /// Whether an action that succeeds is written in the audit log.
    func records(_ action: AuditEvent.Action) -> Bool { trail?.records(action) ?? false }

    /// The answer to a request for something that would have to be recorded and cannot be; nil if it can.
    func unrecorded(
        _ action: AuditEvent.Action, in place: AccessFailure.Place, isWrite: Bool
    ) -> Answer? {
        guard let trail, !trail.canRecord(action) else { return nil }
        note(.unrecorded)
        return .now(AccessFailure.unrecorded.response(in: place, isWrite: isWrite))
    }

    /// What stands for a session in the audit log; nil without one.
    func names(of session: UserSession) -> AuditTrail.Names? {
        trail?.names(user: session.user, session: session.id)
    }

    /// Has an app's request recorded.
    func recorded(
        _ answer: Answer, _ action: AuditEvent.Action, by grant: Grant, isWrite: Bool, from address: IPAddress?,
        _ requestID: RequestID
    ) -> Answer {
        guard let trail else { return answer }
        let names = grant.session?.auditNames ?? trail.names(user: grant.user)
        return trail.recorded(
            answer, action, from: address, orElse: { [self] in unrecorded(in: grant.place, isWrite: isWrite) },
            { outcome in
                AuditEvent(
                    action, outcome, by: .user, user: names.user, session: names.session, requestID: requestID.text)
            })
    }

    /// Has a request of an app's server recorded.
    func recorded(
        _ answer: Answer, _ action: AuditEvent.Action, byKey name: String, _ user: [UInt8]?, _ session: SessionID?,
        from address: IPAddress?, _ requestID: RequestID
    ) -> Answer {
        guard let trail else { return answer }
        let names = trail.names(user: user, session: session)
        return trail.recorded(
            answer, action, from: address, orElse: { [self] in unrecorded(in: .field, isWrite: true) },
            { outcome in
                AuditEvent(
                    action, outcome, by: .apiKey(name), user: names.user, session: names.session,
                    requestID: requestID.text)
            })
    }

    /// Has a refusal recorded.
    private func recorded(
        _ answer: Answer, _ failure: AccessFailure, in place: AccessFailure.Place, isWrite: Bool,
        from address: IPAddress?, _ requestID: RequestID
    ) -> Answer {
        guard let trail, failure.isRecorded else { return answer }
        return trail.recorded(
            answer, .authenticate, from: address, orElse: { [self] in unrecorded(in: place, isWrite: isWrite) },
            { _ in
                AuditEvent(.authenticate, .denied(failure.rawValue), by: .none, requestID: requestID.text)
            })
    }

    private func unrecorded(in place: AccessFailure.Place, isWrite: Bool) -> Response {
        note(.unrecorded)
        return AccessFailure.unrecorded.response(in: place, isWrite: isWrite)
    }
}
