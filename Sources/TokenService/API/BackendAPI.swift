internal import Audit
internal import Cryptography
internal import Glibc
internal import HTTP
internal import TokenStore

/// The API of an app's server, below `/v1`: makes and ends sessions, reads and writes tokens, erases users.
///
/// Belongs to one loop's thread.
package final class BackendAPI {
    /// How long the sessions last that are made, and how many a user may have.
    package struct SessionLimits: Sendable {
        /// In seconds.
        package let maxAge: Int64
        package let perUser: Int

        package init(maxAge: Int64, perUser: Int) {
            self.maxAge = maxAge
            self.perUser = perUser
        }
    }

    private let service: TokenService
    private let keys: () -> APIKeys
    private let limits: SessionLimits
    private let guardian: AccessGuard

    /// - Parameters:
    ///   - service: The loop's.
    ///   - keys: The keys of the moment.
    ///   - limits: Those of sessions that are made.
    ///   - guardian: The loop's.
    package init(
        _ service: TokenService, keys: @escaping () -> APIKeys, limits: SessionLimits, _ guardian: AccessGuard
    ) {
        self.service = service
        self.keys = keys
        self.limits = limits
        self.guardian = guardian
    }

    /// A request, as far as it was understood.
    private struct Call {
        let key: APIKey
        let requestID: RequestID
        let address: IPAddress?
        let preconditions: Preconditions
    }

    /// Answers a request for a path below `/v1`.
    func answer(
        to request: Request, in bytes: Span<UInt8>, _ requestID: RequestID, from source: RequestSource
    ) -> Answer {
        let address = source.address(of: request.head, in: bytes)
        func deny(_ failure: AccessFailure) -> Answer {
            // In a field, reads and writes are denied alike.
            guardian.deny(failure, in: .field, isWrite: false, from: address, requestID)
        }

        let key: APIKey
        do throws(AccessFailure) {
            key = try find(request.head, in: bytes)
        } catch {
            return deny(error)
        }
        let resource: APIResource
        do throws(APIResource.Fault) {
            resource = try APIResource(request.head, in: bytes)
        } catch {
            return .now(Self.answer(to: error))
        }
        guard let (operation, scope) = resource.operation(request.head.method) else {
            var response = Response(.methodNotAllowed, "This path has other methods: \(resource.methods).")
            response.extras = Response.Extras(allowedMethods: resource.methods)
            return .now(response)
        }
        guard key.scopes.contains(scope) else { return deny(.scope) }
        guard let preconditions = try? Preconditions(of: request.head, in: bytes) else {
            return .now(.malformedPreconditions)
        }
        let call = Call(key: key, requestID: requestID, address: address, preconditions: preconditions)
        return perform(operation, call, JSONBody(request.body, of: bytes))
    }

    private func find(_ head: RequestHead, in bytes: Span<UInt8>) throws(AccessFailure) -> APIKey {
        guard let token = try UserAccess.bearerToken(of: head, in: bytes) else { throw .missing }
        // Hashing fails only without memory.
        switch try? keys().find(bytes.extracting(token.indices), at: Int64(time(nil))) {
        case .found(let key): return key
        case .expired: throw .expired
        case .unknown: throw .unknown
        case nil: throw .unrecorded
        }
    }

    private static func answer(to fault: APIResource.Fault) -> Response {
        switch fault {
        case .unknown: Response(.notFound, "There is nothing at this path.")
        case .user: .malformedUser
        case .unsafeInPath: .unsafeUserInPath
        }
    }

    // MARK: - Operations

    private func perform(_ operation: APIOperation, _ call: Call, _ body: JSONBody?) -> Answer {
        let action = Self.action(of: operation)
        if let answer = guardian.unrecorded(action, in: .field, isWrite: true) { return answer }
        switch operation {
        case .createSession: return createSession(call, body)
        case .endSession(let id): return endSession(id, call)
        case .listSessions(let user): return recorded(list(user, call), action, user, call)
        case .endSessions(let user): return recorded(end(user, call), action, user, call)
        case .readToken(let user):
            return recorded(
                service.fetch(user, call.requestID).applying(call.preconditions), action, user, call)
        case .storeToken(let user): return recorded(store(body, user, call), action, user, call)
        case .removeToken(let user): return recorded(remove(user, call), action, user, call)
        case .erase(let user): return recorded(erase(user, call), action, user, call)
        }
    }

    private static func action(of operation: APIOperation) -> AuditEvent.Action {
        switch operation {
        case .createSession: .createSession
        case .endSession: .endSession
        case .listSessions: .listSessions
        case .endSessions: .endSessions
        case .readToken: .read
        case .storeToken: .store
        case .removeToken: .remove
        case .erase: .erase
        }
    }

    private func recorded(
        _ answer: Answer, _ action: AuditEvent.Action, _ user: [UInt8]?, session: SessionID? = nil, _ call: Call
    ) -> Answer {
        guardian.recorded(answer, action, byKey: call.key.name, user, session, from: call.address, call.requestID)
    }

    /// Has the store do something.
    private func pending<Outcome>(
        _ call: Call, _ operation: @escaping (Completion<Outcome>) -> Void,
        then answer: @escaping (Outcome) -> Answer
    ) -> Answer {
        let service = service
        return .later(
            PendingAnswer(
                bytes: Token.waitingBytes(id: [], info: []) + UniqueID.limit, timeLimit: service.timeLimit,
                failure: { service.operationFailed($0, call.requestID) }, operation: operation, answer: answer))
    }

    // MARK: - Sessions

    private func createSession(_ call: Call, _ body: JSONBody?) -> Answer {
        guard let user = body?.user, let user = try? APIResource.checked(user) else {
            return recorded(.now(.malformedUserInBody), .createSession, nil, call)
        }
        let (secret, id, key): ([UInt8], SessionID, SessionKey)
        do {
            secret = try RandomBytes.secret(SessionSecret.length)
            id = try SessionID.random()
            key = try service.handle.sessionKey(of: secret.span)
        } catch {
            return .now(Response(.unavailable, "A session cannot be made at the moment."))
        }
        let now = service.handle.unixTime
        let new = NewSession(
            user: user, key: key, id: id, createdAt: now, expiresAt: now + limits.maxAge, perUser: limits.perUser)
        let handle = service.handle
        let answer: Answer = pending(
            call, { handle.createSession(new, completion: $0) }, then: { .now(.created(secret, $0)) })
        return recorded(answer, .createSession, user, session: id, call)
    }

    private func list(_ user: [UInt8], _ call: Call) -> Answer {
        let handle = service.handle
        return pending(call, { handle.listSessions(of: user, completion: $0) }, then: { .now(.list($0)) })
    }

    private func endSession(_ id: SessionID?, _ call: Call) -> Answer {
        guard let id else { return recorded(.now(.noSession), .endSession, nil, call) }
        let handle = service.handle
        return pending(
            call, { handle.endSession(id: id, completion: $0) },
            // Only the store knows whose it was.
            then: { [self] ended in
                recorded(
                    .now(ended == nil ? .noSession : Response(.stored)), .endSession, ended?.user, session: id, call)
            })
    }

    private func end(_ user: [UInt8], _ call: Call) -> Answer {
        let handle = service.handle
        return pending(call, { handle.endSessions(of: user, completion: $0) }, then: { .now(.ended($0)) })
    }

    // MARK: - Tokens

    private func store(_ body: JSONBody?, _ user: [UInt8], _ call: Call) -> Answer {
        guard let tokenInfo = body?.tokenInfo, UniqueID.isUTF8(tokenInfo) else { return .now(.malformedTokenInfo) }
        guard call.preconditions != Preconditions() else { return .now(.preconditionRequired) }
        guard let match = call.preconditions.writeMatch else { return .now(.twoPreconditions) }
        return service.store(
            tokenInfo, under: user, if: WriteCondition(match: match), call.requestID, refusal: Self.refusal)
    }

    private func remove(_ user: [UInt8], _ call: Call) -> Answer {
        guard let match = call.preconditions.writeMatch else { return .now(.twoPreconditions) }
        let (service, requestID) = (service, call.requestID)
        return .later(
            PendingAnswer(
                bytes: Token.waitingBytes(id: user, info: []), timeLimit: service.timeLimit,
                failure: { Self.refusal($0) ?? service.writeFailed($0, requestID) },
                operation: { service.handle.remove(user, if: WriteCondition(match: match), completion: $0) },
                answer: { .now(Response($0 ? .stored : .notFound)) }))
    }

    private static func refusal(_ error: StoreError) -> Response? {
        if case .preconditionFailed = error { .preconditionFailed } else { nil }
    }

    private func erase(_ user: [UInt8], _ call: Call) -> Answer {
        let handle = service.handle
        return pending(call, { handle.erase(user, completion: $0) }, then: { .now(.erased($0)) })
    }
}
