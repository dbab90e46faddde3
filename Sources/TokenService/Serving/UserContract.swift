internal import Audit
internal import HTTP
internal import Synchronization
internal import System
internal import TokenStore

/// The contract in a mode with users: finds out whose token a request is for, and answers for that user alone.
///
/// Belongs to one loop's thread.
final class UserContract {
    private let service: TokenService
    private let access: UserAccess
    private let sessions: SessionCache
    private let guardian: AccessGuard

    init(_ service: TokenService, _ access: UserAccess, _ sessions: SessionCache, _ guardian: AccessGuard) {
        self.service = service
        self.access = access
        self.sessions = sessions
        self.guardian = guardian
    }

    /// Answers a GET or POST.
    func answer(
        to request: Request, in bytes: Span<UInt8>, _ requestID: RequestID, from source: RequestSource
    ) -> Answer {
        let (isWrite, now) = (request.head.method == .post, service.handle.unixTime)
        if !isWrite, let literal = TokenService.literalID(request, in: bytes) {
            let uniqueID = bytes.extracting(literal.indices)
            let finding = access.find(
                uniqueID, isPresent: true, request.head, in: bytes, from: source, sessions, at: now)
            // Most requests are like this, and nothing of them has to be kept.
            if case .user(let grant) = finding, !request.head.fields.hasPreconditions, !guardian.records(.read) {
                noteUse(of: grant, at: now)
                return fetch(
                    for: grant, keep(request, in: bytes, [], nil, requestID, from: source), requestID)
            }
            return answer(to: request, in: bytes, requestID, from: source, finding, at: now) {
                keep(request, in: bytes, [UInt8](literal, in: bytes), nil, requestID, from: source)
            }
        }
        let (parameter, tokenInfo) = service.read(request, in: bytes)
        let uniqueID = UniqueID(parameter, limit: access.uniqueIDLimit)
        if uniqueID == .invalid { return .now(Response(.invalidInput)) }
        let text = uniqueID.text ?? []
        let finding = access.find(
            text.span, isPresent: parameter != nil, request.head, in: bytes, from: source, sessions, at: now)
        return answer(to: request, in: bytes, requestID, from: source, finding, at: now) {
            keep(request, in: bytes, text, tokenInfo, requestID, from: source)
        }
    }

    /// Answers by what the credential turned out to be; no more of a refused request is read.
    private func answer(
        to request: Request, in bytes: Span<UInt8>, _ requestID: RequestID, from source: RequestSource,
        _ finding: UserAccess.Finding, at now: Int64, keeping keep: () -> UserRequest
    ) -> Answer {
        switch finding {
        case .user(let grant): perform(keep(), for: grant, at: now)
        case .session(let lookup): find(lookup, for: keep(), at: now)
        case .denied(let failure, let place):
            guardian.deny(
                failure, in: place, isWrite: request.head.method == .post,
                from: source.address(of: request.head, in: bytes), requestID)
        }
    }

    private func keep(
        _ request: Request, in bytes: Span<UInt8>, _ uniqueID: [UInt8], _ tokenInfo: [UInt8]?, _ requestID: RequestID,
        from source: RequestSource
    ) -> UserRequest {
        UserRequest(
            isWrite: request.head.method == .post, uniqueID: uniqueID, tokenInfo: tokenInfo,
            preconditions: try? Preconditions(of: request.head, in: bytes), requestID: requestID,
            address: source.address(of: request.head, in: bytes))
    }

    // MARK: - Credentials

    private func deny(_ request: UserRequest, _ failure: AccessFailure, in place: AccessFailure.Place) -> Answer {
        guardian.deny(
            failure, in: place, isWrite: request.isWrite, from: request.address, request.requestID)
    }

    /// Reads a session from the store.
    private func find(_ lookup: UserAccess.SessionLookup, for request: UserRequest, at now: Int64) -> Answer {
        let (key, ticket): (SessionKey, SessionCache.Ticket)
        do throws(StoreError) {
            key = try service.handle.sessionKey(of: lookup.secret.span)
            // Before the store is read.
            ticket = sessions.ticket(for: key)
        } catch {
            return .now(failed(request, error))
        }
        return read(key, for: request) { [self] found in proceed(request, lookup, key, ticket, found) }
    }

    /// Reads a session, and goes on with what the store says.
    private func read(
        _ key: SessionKey, for request: UserRequest, _ proceed: @escaping (FoundSession) -> Answer
    ) -> Answer {
        var pending: PendingAnswer?
        do throws(StoreError) {
            let found = try service.handle.findSession(key) {
                let waiting = PendingAnswer(
                    bytes: request.waitingBytes, timeLimit: service.timeLimit,
                    failure: { [self] in failed(request, $0) })
                pending = waiting
                return waiting.completion(proceed)
            }
            if let found { return proceed(found) }
        } catch {
            return .now(failed(request, error))
        }
        guard let pending else { preconditionFailure("an outcome that comes later needs a completion") }
        return .later(pending)
    }

    private func failed(_ request: UserRequest, _ error: StoreError) -> Response {
        request.isWrite
            ? service.writeFailed(error, request.requestID) : service.readFailed(error, request.requestID)
    }

    /// Continues with what the store has said about a session.
    private func proceed(
        _ request: UserRequest, _ lookup: UserAccess.SessionLookup, _ key: SessionKey,
        _ ticket: SessionCache.Ticket,
        _ found: FoundSession
    ) -> Answer {
        guard case .found(let session) = found, case .session(let rules) = access.mode else {
            return deny(request, .unknown, in: lookup.place)
        }
        let (entry, now) = (
            SessionCache.Entry(session, key, guardian.names(of: session), ticket), service.handle.unixTime
        )
        guard case .valid = UserAccess.validity(of: entry, rules, at: now) else {
            return deny(request, .expired, in: lookup.place)
        }
        sessions.insert(entry, under: lookup.text)
        let grant = Grant(user: session.user, session: entry, place: lookup.place)
        if SessionText(request.uniqueID.span) != lookup.text,
            case .denied(let failure, let place) = UserAccess.check(request.uniqueID.span, grant)
        {
            return deny(request, failure, in: place)
        }
        return perform(request, for: grant, at: now)
    }

    /// Tells the store that a session was used, if half of its idle time has passed since that was last told.
    private func noteUse(of grant: Grant, at now: Int64) {
        guard case .session(let rules) = access.mode, let entry = grant.session else { return }
        let last = entry.lastUsedAt.load(ordering: .relaxed)
        guard now - last > rules.idleTimeout / 2,
            entry.lastUsedAt.compareExchange(expected: last, desired: now, ordering: .relaxed).exchanged
        else { return }
        service.handle.noteUse(of: entry.key, at: now)
    }

    // MARK: - The store

    private func perform(_ request: UserRequest, for grant: Grant, at now: Int64) -> Answer {
        noteUse(of: grant, at: now)
        let action: AuditEvent.Action = request.isWrite ? .store : .read
        if let answer = guardian.unrecorded(action, in: grant.place, isWrite: request.isWrite) { return answer }
        return recorded(unrecorded(request, for: grant), request, grant)
    }

    private func unrecorded(_ request: UserRequest, for grant: Grant) -> Answer {
        guard let preconditions = request.preconditions else { return .now(.malformedPreconditions) }
        guard request.isWrite else { return fetch(for: grant, request, request.requestID).applying(preconditions) }
        guard let tokenInfo = request.tokenInfo, UniqueID.isUTF8(tokenInfo) else {
            return .now(Response(.invalidInput))
        }
        guard let match = preconditions.writeMatch else { return .now(.twoPreconditions) }
        let condition = WriteCondition(match: match, session: grant.session?.key)
        return service.store(tokenInfo, under: grant.user, if: condition, request.requestID) { error in
            switch error {
            case .preconditionFailed: .preconditionFailed
            case .sessionEnded: AccessFailure.unknown.response(in: grant.place, isWrite: true)
            default: nil
            }
        }
    }

    /// The answer to a GET, if the session had not ended when the token was read.
    ///
    /// The session is looked at after the token, as another thread may have ended it, and stored a new token, since it was
    /// found: that token is none of its business.
    private func fetch(for grant: Grant, _ request: @autoclosure () -> UserRequest, _ id: RequestID) -> Answer {
        let answer = service.fetch(grant.user, id)
        guard let entry = grant.session else { return answer }
        if case .now = answer, sessions.isValid(entry) { return answer }
        let request = request()
        return answer.then { [self] answer, _ in
            if sessions.isValid(entry) { return answer }
            // It may have been another session of its group that has ended.
            return read(entry.key, for: request) { found in
                if case .found = found { return answer }
                return .now(AccessFailure.unknown.response(in: grant.place, isWrite: false))
            }
        }
    }

    private func recorded(_ answer: Answer, _ request: UserRequest, _ grant: Grant) -> Answer {
        guardian.recorded(
            answer, request.isWrite ? .store : .read, by: grant, isWrite: request.isWrite, from: request.address,
            request.requestID)
    }
}

/// A request for the contract in a mode with users: what is kept of it once its bytes may be dropped.
struct UserRequest {
    /// Whether it is a POST; otherwise it is a GET.
    let isWrite: Bool
    /// With its tags removed; empty if it is missing.
    let uniqueID: [UInt8]
    let tokenInfo: [UInt8]?
    /// Nil if they are malformed.
    let preconditions: Preconditions?
    let requestID: RequestID
    /// The client's; nil for a Unix socket.
    let address: IPAddress?

    /// Bytes of memory that it takes while it waits.
    var waitingBytes: Int { Token.waitingBytes(id: uniqueID, info: tokenInfo ?? []) }
}
