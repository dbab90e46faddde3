import Audit
import HTTP
import System
import TokenStore

/// The contract in a mode with users: finds out whose token a request is for, and answers for that user alone.
///
/// Belongs to one loop's thread.
final class UserContract {
    private let service: TokenService
    /// The service's.
    private let handle: any StoreHandle
    private let access: UserAccess
    private let sessions: SessionCache
    private let guardian: AccessGuard

    init(_ service: TokenService, _ access: UserAccess, _ sessions: SessionCache, _ guardian: AccessGuard) {
        self.service = service
        handle = service.handle
        self.access = access
        self.sessions = sessions
        self.guardian = guardian
    }

    /// Answers a GET or POST.
    func answer(
        to request: Request, in bytes: Span<UInt8>, _ requestID: RequestID, from source: RequestSource
    ) -> Answer {
        let now = handle.unixTime
        let fields = service.read(request, in: bytes)
        let uniqueID = UniqueID(fields.uniqueID, limit: access.uniqueIDLimit)
        if uniqueID == .invalid { return .now(.invalidInput) }
        let caller = Caller(address: source.client, requestID: requestID)
        let kept = UserRequest(
            isWrite: request.head.method == .post, caller: caller, uniqueID: uniqueID.text ?? [],
            tokenInfo: fields.tokenInfo, preconditions: try? Preconditions(of: request.head, in: bytes))
        let finding = access.find(
            kept.uniqueID.span, isPresent: fields.uniqueID != nil, request.head, in: bytes, from: source, sessions,
            at: now)
        return switch finding {
        case .user(let grant): perform(kept, for: grant)
        case .session(let lookup): find(lookup, for: kept)
        case .denied(let failure, let place): guardian.deny(failure, in: place, caller)
        }
    }

    // MARK: - Credentials

    /// Reads a session from the store.
    private func find(_ lookup: UserAccess.SessionLookup, for request: UserRequest) -> Answer {
        var pending: PendingAnswer?
        do {
            let key = try handle.sessionKey(of: lookup.secret.span)
            // Before the store is read.
            let ticket = sessions.ticket(for: key)
            let found = try handle.findSession(key) {
                let waiting = PendingAnswer(
                    bytes: request.waitingBytes, timeLimit: service.timeLimit,
                    failure: { [self] in failed(request, $0) })
                pending = waiting
                return waiting.completion { [self] in proceed(request, lookup, key, ticket, $0) }
            }
            if let found { return proceed(request, lookup, key, ticket, found) }
        } catch {
            return .now(failed(request, error))
        }
        guard let pending else { preconditionFailure("an outcome that comes later needs a completion") }
        return .later(pending)
    }

    private func failed(_ request: UserRequest, _ error: StoreError) -> Response {
        service.failed(error, request.caller.requestID, isWrite: request.isWrite)
    }

    /// Continues with what the store has said about a session.
    private func proceed(
        _ request: UserRequest, _ lookup: UserAccess.SessionLookup, _ key: SessionKey,
        _ ticket: ChangeVersions.Ticket, _ found: FoundSession
    ) -> Answer {
        // Any number of requests may have waited for the store since.
        if let refusal = guardian.limited(request.caller.address) { return .now(refusal) }
        guard case .found(let session) = found, case .session(let idleTimeout) = access.mode else {
            return guardian.deny(.unknown, in: lookup.place, request.caller)
        }
        let (entry, now) = (
            SessionCache.Entry(
                session, key, lookup.text, guardian.names(user: session.user, session: session.id), ticket),
            handle.unixTime
        )
        let validity = UserAccess.validity(of: session, idleTimeout, at: now)
        guard validity == .valid || validity == .unnoted else {
            return guardian.deny(.expired, in: lookup.place, request.caller)
        }
        sessions.insert(entry)
        let grant = Grant(user: session.user, session: entry, place: lookup.place)
        if request.uniqueID != lookup.text,
            case .denied(let failure, let place) = UserAccess.check(request.uniqueID.span, grant)
        {
            return guardian.deny(failure, in: place, request.caller)
        }
        // Each request notes its use until the store knows of one, as the store may lose it.
        if validity == .unnoted { handle.noteUse(of: key, at: now) }
        return perform(request, for: grant)
    }

    // MARK: - The store

    private func perform(_ request: UserRequest, for grant: Grant) -> Answer {
        let action: AuditEvent.Action = request.isWrite ? .store : .read
        if let answer = guardian.unrecorded(action, in: grant.place) { return answer }
        return guardian.recorded(
            answer(to: request, for: grant), action, by: .user,
            grant.session?.auditNames ?? guardian.names(user: grant.user), in: grant.place, request.caller)
    }

    private func answer(to request: UserRequest, for grant: Grant) -> Answer {
        guard let preconditions = request.preconditions else { return .now(.malformedPreconditions) }
        guard request.isWrite else {
            return fetch(for: grant, request.caller.requestID).applying(preconditions)
        }
        guard let tokenInfo = request.tokenInfo, UniqueID.isUTF8(tokenInfo) else {
            return .now(.invalidInput)
        }
        guard let match = preconditions.writeMatch else { return .now(.twoPreconditions) }
        let condition = WriteCondition(match: match, session: grant.session?.key)
        return service.store(tokenInfo, under: grant.user, if: condition, request.caller.requestID) { error in
            switch error {
            case .preconditionFailed: .preconditionFailed
            case .sessionEnded: AccessFailure.unknown.response(in: grant.place)
            default: nil
            }
        }
    }

    /// The answer to a GET, if the session had not ended when the token was read.
    ///
    /// Another thread or server may have ended the session since it was found, and then stored a new token, which the holder of the
    /// session must not see.
    private func fetch(for grant: Grant, _ requestID: RequestID) -> Answer {
        guard let entry = grant.session else { return service.fetch(grant.user, requestID) }
        if sessions.seesEnds {
            let answer = service.fetch(grant.user, requestID)
            // The session is looked at after the token.
            if case .now = answer, sessions.isValid(entry) { return answer }
        }
        // The store is to look at both at once. It also decides about long tokens, whose reading has not begun, and after the end of
        // another session of the same group in `ChangeVersions`.
        return service.fetch(
            TokenService.StoredRead(id: grant.user, session: entry.key, requestID: requestID) { error in
                guard case .sessionEnded = error else { return nil }
                return AccessFailure.unknown.response(in: grant.place)
            })
    }
}

/// What is kept of a request for the contract in a mode with users, once its bytes may be dropped.
struct UserRequest {
    /// Whether it is a POST; otherwise it is a GET.
    let isWrite: Bool
    let caller: Caller
    /// With its tags removed; empty if it is missing.
    let uniqueID: [UInt8]
    let tokenInfo: [UInt8]?
    /// Nil if they are malformed.
    let preconditions: Preconditions?

    /// Bytes of memory that it takes while it waits.
    var waitingBytes: Int { Token.waitingBytes(id: uniqueID, info: tokenInfo ?? []) }
}
