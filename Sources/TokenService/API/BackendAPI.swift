import Audit
import Cryptography
import Glibc
import HTTP
import TokenStore

/// The API for an app's server, below `/v1`: makes and ends sessions, reads and writes tokens, erases users.
///
/// Belongs to one loop's thread.
package final class BackendAPI {
    private let service: TokenService
    /// The service's.
    private let handle: any StoreHandle
    private let keys: () -> APIKeys
    private let sessionMaxAge: Int64
    private let sessionsPerUser: Int
    private let guardian: AccessGuard

    /// - Parameters:
    ///   - service: The loop's.
    ///   - keys: Gives the current keys.
    ///   - sessionMaxAge: How long new sessions last, in seconds.
    ///   - sessionsPerUser: How many sessions a user may have.
    ///   - guardian: The loop's.
    package init(
        _ service: TokenService, keys: @escaping () -> APIKeys, sessionMaxAge: Int64, sessionsPerUser: Int,
        _ guardian: AccessGuard
    ) {
        self.service = service
        handle = service.handle
        self.keys = keys
        self.sessionMaxAge = sessionMaxAge
        self.sessionsPerUser = sessionsPerUser
        self.guardian = guardian
    }

    /// What the operations need of a request, beside its resource and body.
    private struct Call {
        let key: APIKey
        let caller: Caller
        let preconditions: Preconditions
    }

    /// Answers a request for a path below `/v1`.
    func answer(
        to request: Request, in bytes: Span<UInt8>, _ requestID: RequestID, from source: RequestSource
    ) -> Answer {
        let caller = Caller(address: source.client, requestID: requestID)
        let key: APIKey
        do {
            key = try find(request.head, in: bytes)
        } catch {
            return guardian.deny(error, in: .field, caller)
        }
        let resource: APIResource
        do {
            resource = try APIResource(request.head, in: bytes)
        } catch {
            return .now(error == .user ? .malformedUser : Response(.notFound, "There is nothing at this path."))
        }
        guard let (action, scope) = resource.action(request.head.method) else {
            let methods = resource.methods
            var response = Response(.methodNotAllowed, "This path has other methods: \(methods).")
            response.extras = Response.Extras(allowedMethods: methods)
            return .now(response)
        }
        guard key.scopes.contains(scope) else { return guardian.deny(.scope, in: .field, caller) }
        guard let preconditions = try? Preconditions(of: request.head, in: bytes) else {
            return .now(.malformedPreconditions)
        }
        let call = Call(key: key, caller: caller, preconditions: preconditions)
        return perform(action, on: resource, call, JSONBody(request.body, of: bytes))
    }

    private func find(_ head: RequestHead, in bytes: Span<UInt8>) throws(AccessFailure) -> APIKey {
        guard let token = try UserAccess.bearerToken(of: head, in: bytes) else { throw .missing }
        switch keys().find(bytes.extracting(token.indices), at: Int64(time(nil))) {
        case .found(let key): return key
        case .expired: throw .expired
        case .unknown: throw .unknown
        }
    }

    // MARK: - Operations

    private func perform(
        _ action: AuditEvent.Action, on resource: APIResource, _ call: Call, _ body: JSONBody?
    ) -> Answer {
        if let answer = guardian.unrecorded(action, in: .field) { return answer }
        let handle = handle
        switch resource {
        case .sessions: return createSession(call, body)
        case .session(let id): return endSession(id, call)
        case .sessionsOfUser(let user):
            let answer =
                action == .endSessions
                ? pending(call, { handle.endSessions(of: user, completion: $0) }, then: Response.ended)
                : pending(call, { handle.listSessions(of: user, completion: $0) }, then: Response.list)
            return recorded(answer, action, user, call)
        case .token(let user):
            let answer =
                switch action {
                case .store: store(body, user, call)
                case .remove: remove(user, call)
                default: service.fetch(user, call.caller.requestID).applying(call.preconditions)
                }
            return recorded(answer, action, user, call)
        case .user(let user):
            let answer = pending(call, { handle.erase(user, completion: $0) }, then: Response.erased)
            return recorded(answer, action, user, call)
        }
    }

    private func recorded(
        _ answer: Answer, _ action: AuditEvent.Action, _ user: [UInt8]?, session: SessionID? = nil, _ call: Call
    ) -> Answer {
        guardian.recorded(
            answer, action, by: .apiKey(call.key.name), guardian.names(user: user, session: session), in: .field,
            call.caller)
    }

    /// The answer to a request for which the store does something.
    ///
    /// - Parameters:
    ///   - call: The request.
    ///   - failure: Reports an error and gives its answer; nil for that of an operation on sessions or a user.
    ///   - operation: Begins what the store does, and calls its completion once.
    ///   - answer: The answer to what was done.
    private func pending<Outcome>(
        _ call: Call, failure: ((StoreError) -> Response)? = nil,
        _ operation: @escaping (Completion<Outcome>) -> Void, then answer: @escaping (Outcome) -> Response
    ) -> Answer {
        let service = service
        return .later(
            PendingAnswer(
                bytes: Token.waitingBytes(id: [], info: []) + UniqueID.limit, timeLimit: service.timeLimit,
                failure: failure ?? { service.operationFailed($0, call.caller.requestID) },
                work: { operation($0.completion { .now(answer($0)) }) }))
    }

    // MARK: - Sessions

    private func createSession(_ call: Call, _ body: JSONBody?) -> Answer {
        guard let user = body?.user, let user = try? APIResource.checked(user) else {
            return recorded(.now(.malformedUserInBody), .createSession, nil, call)
        }
        let (secret, id) = (RandomBytes.secret(SessionSecret.length), SessionID.random())
        let key: SessionKey
        do {
            key = try handle.sessionKey(of: secret.span)
        } catch {
            let failure = Response(.unavailable, "A session cannot be made at the moment.")
            return recorded(.now(failure), .createSession, user, call)
        }
        let session = UserSession(id: id, user: user, storeTime: handle.unixTime, maxAge: sessionMaxAge)
        let answer: Answer = pending(
            call,
            { [handle, sessionsPerUser] in
                handle.createSession(session, key, perUser: sessionsPerUser, completion: $0)
            },
            then: { (_: Int) in .created(secret, session) })
        return recorded(answer, .createSession, user, session: id, call)
    }

    private func endSession(_ id: SessionID?, _ call: Call) -> Answer {
        guard let id else { return recorded(.now(.noSession), .endSession, nil, call) }
        let handle = handle
        // Only the store knows whose session it was.
        var user: [UInt8]?
        let answer = pending(
            call, { handle.endSession(id: id, completion: $0) },
            then: { ended in
                user = ended?.user
                return ended == nil ? .noSession : .stored
            })
        // The event is recorded also if the store fails.
        return answer.then { [self] answer, _ in recorded(answer, .endSession, user, session: id, call) }
    }

    // MARK: - Tokens

    private func store(_ body: JSONBody?, _ user: [UInt8], _ call: Call) -> Answer {
        guard let tokenInfo = body?.tokenInfo, UniqueID.isUTF8(tokenInfo) else { return .now(.malformedTokenInfo) }
        guard call.preconditions != Preconditions() else { return .now(.preconditionRequired) }
        guard let match = call.preconditions.writeMatch else { return .now(.twoPreconditions) }
        return service.store(
            tokenInfo, under: user, if: WriteCondition(match: match), call.caller.requestID, refusal: Self.refusal)
    }

    private func remove(_ user: [UInt8], _ call: Call) -> Answer {
        guard let match = call.preconditions.writeMatch else { return .now(.twoPreconditions) }
        let (service, requestID) = (service, call.caller.requestID)
        return pending(
            call, failure: { Self.refusal($0) ?? service.failed($0, requestID, isWrite: true) },
            { [handle] in handle.remove(user, if: WriteCondition(match: match), completion: $0) },
            then: { $0 ? .stored : .notFound })
    }

    private static func refusal(_ error: StoreError) -> Response? {
        if case .preconditionFailed = error { .preconditionFailed } else { nil }
    }
}
