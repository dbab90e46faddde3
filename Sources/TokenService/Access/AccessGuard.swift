import Audit
package import HTTP
import System
import TokenStore

/// Refuses requests, counts the reasons, limits clients that guess, and records refusals and outcomes in the audit log.
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
    func deny(_ failure: AccessFailure, in place: AccessFailure.Place, _ caller: Caller) -> Answer {
        if failure.isGuess { noteGuess(from: caller.address) }
        note(failure)
        let answer = Answer.now(failure.response(in: place))
        guard failure.isRecorded else { return answer }
        let event = AuditEvent(.authenticate, .denied(failure.rawValue), by: .none)
        return recorded(answer, event, in: place, caller)
    }

    /// Whether addresses are limited at all.
    var limitsFailures: Bool { limiter != nil }

    /// The answer with status 429 if an address has failed too often; nil if its request is to be served.
    func limited(_ address: IPAddress?) -> Response? {
        guard let wait = limiter?.wait(for: address, at: MonotonicTime.now) else { return nil }
        note(.limited)
        let seconds = max(1, Int(wait.components.seconds) + (wait.components.attoseconds > 0 ? 1 : 0))
        return AccessFailure.limited.response(in: .field, wait: seconds)
    }

    /// Counts a failure of an address.
    func noteGuess(from address: IPAddress?) {
        limiter?.noteFailure(from: address, at: MonotonicTime.now)
    }
}

// MARK: - Audit log

extension AccessGuard {
    /// The answer if an action has to be recorded and cannot be; nil if the action may begin.
    func unrecorded(_ action: AuditEvent.Action, in place: AccessFailure.Place) -> Answer? {
        guard let trail, !trail.canRecord(action) else { return nil }
        return .now(unrecorded(in: place))
    }

    private func unrecorded(in place: AccessFailure.Place) -> Response {
        note(.unrecorded)
        return AccessFailure.unrecorded.response(in: place)
    }

    /// The pseudonyms of a user and a session in the audit log; nil without one.
    func names(user: [UInt8]?, session: SessionID? = nil) -> AuditTrail.Names? {
        trail?.names(user: user, session: session)
    }

    /// Records the outcome of a request once its answer is there.
    func recorded(
        _ answer: Answer, _ action: AuditEvent.Action, by actor: AuditEvent.Actor, _ names: AuditTrail.Names?,
        in place: AccessFailure.Place, _ caller: Caller
    ) -> Answer {
        recorded(
            answer, AuditEvent(action, .ok, by: actor, user: names?.user, session: names?.session), in: place, caller)
    }

    private func recorded(
        _ answer: Answer, _ event: AuditEvent, in place: AccessFailure.Place, _ caller: Caller
    ) -> Answer {
        guard let trail else { return answer }
        return trail.recorded(answer, event, caller) { [self] in unrecorded(in: place) }
    }
}

/// Who has sent a request.
struct Caller {
    /// The client's address; nil for a Unix socket.
    let address: IPAddress?
    let requestID: RequestID
}

/// Why a request that could be read is not served, in the words of the metrics and the audit log.
package enum AccessFailure: String, CaseIterable, Error, Sendable {
    /// There is no credential.
    case missing
    /// The credential is malformed.
    case malformed
    /// The credential is not known, or was revoked.
    case unknown
    /// The credential is no longer valid.
    case expired
    /// A JWT is not accepted.
    case invalidToken = "invalid_token"
    /// A JWT is longer than `JWTVerifier.tokenLimit`.
    case tooLong = "too_long"
    /// `unique_id` names another user than the credential.
    case otherUser = "other_user"
    /// There are two different credentials.
    case conflicting
    /// An API key does not have the scope.
    case scope
    /// A browser sent the request for a page of another site, with the user's certificate or login at the proxy.
    case foreignPage = "foreign_page"
    /// The address has had too many failures.
    case limited
    /// The audit log cannot be written.
    case unrecorded

    /// Whether guessing can cause this failure, so that it counts for `access.failures`.
    ///
    /// A phone that was off for long sends an expired session, and a request without a credential guesses nothing.
    var isGuess: Bool {
        switch self {
        case .malformed, .unknown, .invalidToken: true
        case .missing, .expired, .tooLong, .otherUser, .conflicting, .scope, .foreignPage, .limited, .unrecorded: false
        }
    }

    /// Whether the failure is written in the audit log: it may be a guess, or the misuse of a real credential.
    var isRecorded: Bool { isGuess || [.expired, .otherUser, .scope, .foreignPage].contains(self) }

    /// Where a request has its credential, which decides what the answer to a failure looks like.
    package enum Place: Sendable {
        /// In `unique_id`, as apps that were made for `token.php` do. They only read the JSON of an answer with status 200, which is
        /// not the same for reads and writes.
        case parameter(isWrite: Bool)
        /// In a header field or a certificate.
        case field
    }

    /// The answer according to RFC 6750, section 3.1, and the contract.
    ///
    /// - Parameters:
    ///   - place: Where the credential is.
    ///   - wait: For `limited`, the seconds after which a failure is within the limit again.
    package func response(in place: Place, wait: Int? = nil) -> Response {
        switch (self, place) {
        case (.missing, .parameter): return .invalidInput
        case (.malformed, .parameter(let isWrite)), (.unknown, .parameter(let isWrite)),
            (.expired, .parameter(let isWrite)), (.invalidToken, .parameter(let isWrite)):
            // The body is that for an id without a token, or for a failed write; `code` counts it as a refusal.
            var response: Response = isWrite ? .writeFailed : .notFound
            response.errorCode = .denied
            // Shows clients that know this field that it is not about an id without a token.
            response.extras = Response.Extras(challenge: .invalidToken)
            return response
        case (.unrecorded, .parameter(let isWrite)): return .failure(isWrite: isWrite)
        case (.missing, .field):
            return Response(.unauthorized, "A credential is missing.", challenge: .missing)
        case (.malformed, .field), (.unknown, .field), (.expired, .field), (.invalidToken, .field):
            return Response(.unauthorized, "The credential is not valid, or no longer.", challenge: .invalidToken)
        // A `unique_id` of that length has been refused before.
        case (.tooLong, _): return Response(.headTooLarge, "The credential has more than 16 KiB.")
        case (.otherUser, _): return Response(.forbidden, "The unique_id is not that of the credential's user.")
        case (.conflicting, _): return Response(.badRequest, "The request has two different credentials.")
        case (.scope, _):
            return Response(.forbidden, "The API key does not have the scope for this.", challenge: .insufficientScope)
        case (.foreignPage, _): return Response(.forbidden, "A page of another site must not send this.")
        case (.limited, _):
            var response = Response(.tooManyRequests, "Too many failed requests came from this address.")
            response.extras = Response.Extras(retryAfter: wait)
            return response
        case (.unrecorded, .field): return Response(.unavailable, "The request cannot be recorded at the moment.")
        }
    }
}
