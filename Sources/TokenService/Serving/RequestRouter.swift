package import HTTP

/// Takes the requests that `plainService` does not take, and leads them to the contract, with users or without, or to the API.
///
/// Belongs to one loop's thread.
package final class RequestRouter {
    /// Set if all requests go straight to the contract, as with `token.php`.
    package let plainService: TokenService?
    private let service: TokenService
    /// Nil in mode `open`.
    private let contract: UserContract?
    /// Nil without API keys.
    private let api: BackendAPI?
    /// Nil without an app secret of Facebook's.
    private let callbacks: FacebookCallbacks?
    private let guardian: AccessGuard

    /// - Parameters:
    ///   - service: The loop's.
    ///   - access: How requests show their users, and the sessions that were used recently; nil in mode `open`.
    ///   - guardian: Refuses requests.
    ///   - api: Nil without API keys.
    ///   - callbacks: Nil without an app secret of Facebook's.
    package init(
        _ service: TokenService, access: (UserAccess, SessionCache)?, guardian: AccessGuard, api: BackendAPI?,
        callbacks: FacebookCallbacks? = nil
    ) {
        self.service = service
        contract = access.map { UserContract(service, $0.0, $0.1, guardian) }
        (self.api, self.callbacks) = (api, callbacks)
        self.guardian = guardian
        let isPlain = contract == nil && api == nil && callbacks == nil && !guardian.limitsFailures
        plainService = isPlain ? service : nil
    }

    /// Answers a request, now or later; for a router without a `plainService`.
    ///
    /// - Parameters:
    ///   - request: A request whose ranges refer to `bytes`.
    ///   - bytes: The request's bytes.
    ///   - requestID: For reports.
    ///   - source: Where the request comes from.
    package func answer(
        to request: Request, in bytes: Span<UInt8>, requestID: RequestID, from source: RequestSource
    ) -> Answer {
        let (head, method) = (request.head, request.head.method)
        // Before anything is looked up: otherwise correct guesses would be answered, and guessing not slowed down.
        if let refusal = guardian.limited(source.client) { return .now(refusal) }
        guard service.isKnown(head.path, of: method, in: bytes) else {
            if let callbacks, callbacks.contains(head.path, in: bytes) {
                return callbacks.answer(to: request, in: bytes, requestID)
            }
            guard let api, APIResource.contains(head.path, in: bytes) else {
                return service.answer(to: request, in: bytes, requestID: requestID)
            }
            return api.answer(to: request, in: bytes, requestID, from: source)
        }
        // Other methods do nothing and tell nothing about anybody's token.
        if let contract, method == .get || method == .post {
            return contract.answer(to: request, in: bytes, requestID, from: source)
        }
        let answer = service.answer(to: request, in: bytes, requestID: requestID)
        guard guardian.limitsFailures, method == .get else { return answer }
        return answer.then { [guardian] answer, _ in
            // Any number of requests may have waited for the store since.
            if let refusal = guardian.limited(source.client) { return .now(refusal) }
            if case .now(let response) = answer, response.outcome == .notFound {
                guardian.noteGuess(from: source.client)
            }
            return answer
        }
    }

    /// The path for the access log; nil if it could contain text that a client has chosen.
    package func loggedPath(_ head: RequestHead, in bytes: Span<UInt8>) -> String? {
        let isKnown =
            service.isKnown(head.path, of: head.method, in: bytes)
            || callbacks?.contains(head.path, in: bytes) ?? false
        return isKnown ? bytes.text(head.path) : nil
    }
}
