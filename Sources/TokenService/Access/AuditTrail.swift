package import Audit
internal import Cryptography
internal import HTTP
internal import TokenStore

/// The events of a loop's turn, and the answers that wait until these are in the audit log.
///
/// Requests without a credential, with two different ones, and those beyond `access.failures` are not recorded; the metrics
/// count them.
///
/// Belongs to one loop's thread.
package final class AuditTrail {
    private let log: AuditLog
    private var recorded: AuditEvents
    private var isRequired: Bool
    private let hasher: AuditHasher
    private var events: [AuditEvent] = []
    private var waiting: [Held] = []

    /// An answer that waits until its event is in the audit log.
    private struct Held {
        let pending: PendingAnswer
        let answer: Answer
        let failure: () -> Response
    }

    /// - Parameters:
    ///   - log: The process's.
    ///   - events: Which events are recorded.
    ///   - isRequired: Whether an answer whose event cannot be recorded is not given.
    package init(_ log: AuditLog, _ events: AuditEvents, isRequired: Bool) throws(AuditError) {
        self.log = log
        recorded = events
        self.isRequired = isRequired
        hasher = try log.makeHasher()
    }

    /// Puts other settings into force.
    package func change(_ events: AuditEvents, isRequired: Bool) {
        recorded = events
        self.isRequired = isRequired
    }

    // MARK: - Events

    /// Whether an action that succeeds is recorded.
    func records(_ action: AuditEvent.Action) -> Bool { recorded.includes(action, .ok) }

    /// False if an action would have to be recorded, and cannot be: then it must not begin.
    func canRecord(_ action: AuditEvent.Action) -> Bool {
        !isRequired || !records(action) || !log.figures.isFailing
    }

    /// The pseudonyms of a user and a session.
    struct Names: Sendable {
        var user: AuditPseudonym?
        var session: AuditPseudonym?
    }

    /// Nil if hashing fails, which it does only without memory.
    func names(user: [UInt8]?, session: SessionID? = nil) -> Names {
        Names(
            user: user.flatMap { try? hasher.pseudonym(.user, of: $0.span) },
            session: session.flatMap { try? hasher.pseudonym(.session, of: $0.bytes.span) })
    }

    /// Records what an answer tells, once it is there, and holds it back until the event is in the log.
    ///
    /// - Parameters:
    ///   - answer: The answer.
    ///   - action: What the request asked for.
    ///   - address: The client's; nil for a client of a Unix socket.
    ///   - failure: The answer if the event cannot be recorded.
    ///   - event: Makes the event with its outcome, without the address.
    func recorded(
        _ answer: Answer, _ action: AuditEvent.Action, from address: IPAddress?,
        orElse failure: @escaping () -> Response, _ event: @escaping (AuditEvent.Outcome) -> AuditEvent
    ) -> Answer {
        answer.then { [self] answer in
            let outcome = Self.outcome(of: answer)
            guard recorded.includes(action, outcome) else { return answer }
            var event = event(outcome)
            if isRepeated(event, from: address) { return answer }
            event.address = address?.description
            events.append(event)
            // Of no bytes: refused for lack of room, it would deny what the log is about to say. It waits until the end of the
            // turn, which limits how much waits.
            let pending = PendingAnswer(bytes: 0, timeLimit: nil, failure: { _ in failure() })
            waiting.append(Held(pending: pending, answer: answer, failure: failure))
            return .later(pending)
        }
    }

    /// Whether an event is only counted: what is refused, a client can send again at once, and as often as it likes.
    private func isRepeated(_ event: AuditEvent, from address: IPAddress?) -> Bool {
        switch event.outcome {
        case .denied, .preconditionFailed: break
        case .ok, .notFound, .failed: return false
        }
        if log.figures.isFailing { return false }
        var common = event
        common.requestID = nil
        common.address = address.map { $0.isIPv4 ? $0.description : "\($0.network)/64" }
        return log.isCounted(common)
    }

    private static func outcome(of answer: Answer) -> AuditEvent.Outcome {
        guard case .now(let response) = answer else { return .ok }
        if response.isFailure { return .failed }
        switch response.status {
        case .ok:
            switch response.code {
            case .none: return .ok
            case .notFound: return .notFound
            case .denied: return .denied(AccessFailure.unknown.rawValue)
            case .invalidInput, .unsupportedMethod: return .denied("invalid_request")
            case .writeFailed: return .failed
            }
        case .created, .notModified: return .ok
        case .notFound: return .notFound
        case .preconditionFailed: return .preconditionFailed
        case .unauthorized: return .denied(AccessFailure.unknown.rawValue)
        default: return response.status.rawValue < 500 ? .denied("invalid_request") : .failed
        }
    }

    // MARK: - Turns

    /// Whether there is something to write.
    package var isEmpty: Bool { waiting.isEmpty }

    /// Writes the events of the turn, and lets the answers go.
    package func flush() {
        guard !waiting.isEmpty else { return }
        var (events, answers): ([AuditEvent], [Held]) = ([], [])
        swap(&events, &self.events)
        swap(&answers, &waiting)
        var isRecorded = true
        do throws(AuditError) {
            try log.append(events)
        } catch {
            // The log reports that it fails, and that it works again.
            isRecorded = false
        }
        for held in answers {
            held.pending.finish(isRecorded || !isRequired ? held.answer : .now(held.failure()))
        }
    }
}
