package import Audit
import Cryptography
import HTTP
import System
import TokenStore

/// The events of a loop's turn, and the answers that wait until another thread has written these events to the audit log.
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
    private let execute: @Sendable (@escaping @Sendable () -> Void) -> Void
    private var events: [AuditEvent] = []
    /// The answers that wait until the events of a turn are in the audit log.
    private var turn = LoopBound<[(pending: PendingAnswer, answer: Answer, failure: () -> Response)]>([])

    /// - Parameters:
    ///   - log: The process's.
    ///   - events: Which events are recorded.
    ///   - isRequired: Whether an answer whose event cannot be recorded is not given.
    ///   - execute: Runs work on the loop's thread.
    package init(
        _ log: AuditLog, _ events: AuditEvents, isRequired: Bool,
        execute: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) {
        self.log = log
        self.execute = execute
        recorded = events
        self.isRequired = isRequired
        hasher = log.makeHasher()
    }

    /// Applies changed settings.
    package func change(_ events: AuditEvents, isRequired: Bool) {
        recorded = events
        self.isRequired = isRequired
    }

    // MARK: - Events

    /// Whether an action may begin: false if it has to be recorded and cannot be.
    func canRecord(_ action: AuditEvent.Action) -> Bool {
        !isRequired || !recorded.includes(action, .ok) || !log.figures.isFailing
    }

    /// The pseudonyms of a user and a session.
    struct Names: Sendable {
        var user: AuditPseudonym?
        var session: AuditPseudonym?
    }

    func names(user: [UInt8]?, session: SessionID? = nil) -> Names {
        Names(
            user: user.map { hasher.pseudonym(.user, of: $0.span) },
            session: session.map { hasher.pseudonym(.session, of: $0.bytes.span) })
    }

    /// Records the outcome of an answer once it is there, and holds the answer back until the event is in the log.
    ///
    /// - Parameters:
    ///   - answer: The answer.
    ///   - event: Without the caller's address and request id. Unless it is already denied, the answer decides its outcome.
    ///   - failure: The answer if the event cannot be recorded.
    func recorded(
        _ answer: Answer, _ event: AuditEvent, _ caller: Caller, orElse failure: @escaping () -> Response
    ) -> Answer {
        answer.then { [self] answer, waiting in
            var event = event
            if event.outcome == .ok { event.outcome = Self.outcome(of: answer) }
            guard recorded.includes(event.action, event.outcome) else { return answer }
            if isRepeated(event, from: caller.address) { return answer }
            (event.address, event.requestID) = (caller.address?.description, caller.requestID.text)
            events.append(event)
            let bytes = Self.bytes(of: answer)
            // The time limit of an answer that waited for the store may be nearly over.
            let pending =
                if let waiting, waiting.timeLimit == nil, bytes <= waiting.bytes { waiting } else {
                    PendingAnswer(bytes: bytes, timeLimit: nil, failure: { _ in failure() })
                }
            turn.value.append((pending, answer, failure))
            return .later(pending)
        }
    }

    /// Bytes that an answer holds while it waits, beyond what any connection has.
    private static func bytes(of answer: Answer) -> Int {
        switch answer {
        case .now(let response): response.body.count > 4096 ? response.body.count : 0
        case .inPieces(let long): long.capacity
        case .later: 0
        }
    }

    /// Whether an event is only counted: a client can repeat a refused request at once, and as often as it likes.
    private func isRepeated(_ event: AuditEvent, from address: IPAddress?) -> Bool {
        switch event.outcome {
        case .denied, .preconditionFailed: break
        case .ok, .notFound, .failed: return false
        }
        // While the disk does not respond, refusals are still counted: otherwise they would take the room of other events.
        if log.figures.isFailing, !log.isStalled { return false }
        var common = event
        common.address = address.map { $0.isIPv4 ? $0.description : "\($0.network)/64" }
        return log.isCounted(common)
    }

    private static func outcome(of answer: Answer) -> AuditEvent.Outcome {
        guard case .now(let response) = answer else { return .ok }
        return switch response.outcome {
        case .done: .ok
        case .notFound: .notFound
        case .failed: .failed
        case .refused:
            switch response.status {
            case .notFound: .notFound
            case .preconditionFailed: .preconditionFailed
            case .unauthorized: .denied(AccessFailure.unknown.rawValue)
            default: .denied(response.errorCode == .denied ? AccessFailure.unknown.rawValue : "invalid_request")
            }
        }
    }

    // MARK: - Turns

    /// Gives the turn's events to the log, and the answers to their clients once it has written them; called at the end of a turn.
    package func flush() {
        guard !events.isEmpty else { return }
        let (events, turn) = (events, turn)
        (self.events, self.turn) = ([], LoopBound([]))
        log.submit(events) { [turn, execute, isRequired] isRecorded in
            // The log itself reports that it fails, and that it works again.
            execute {
                for (pending, answer, failure) in turn.value {
                    pending.finish(isRecorded || !isRequired ? answer : .now(failure()))
                }
            }
        }
    }
}
