package import HTTP

/// Takes every request of a loop: to the contract, in the mode with users or without, or to the API.
///
/// Belongs to one loop's thread.
package final class RequestRouter {
    /// Set if requests go straight to the contract, as with `token.php`: it takes nothing but the request.
    package let plainService: TokenService?
    private let service: TokenService
    /// Nil in mode `open`.
    private let contract: AuthorizedContract?
    /// Nil without API keys.
    private let api: BackendAPI?
    /// Limits GETs that find nothing in mode `open`; nil without such a limit.
    private let openGuard: AccessGuard?

    /// - Parameters:
    ///   - service: The loop's.
    ///   - access: How requests show their users, and the sessions that were used recently; nil in mode `open`.
    ///   - guardian: Refuses requests.
    ///   - api: Nil without API keys.
    ///   - limitsMisses: Whether GETs that find nothing count as failures in mode `open`.
    package init(
        _ service: TokenService, access: (UserAccess, SessionCache)?, guardian: AccessGuard, api: BackendAPI?,
        limitsMisses: Bool
    ) {
        self.service = service
        contract = access.map { AuthorizedContract(service, $0.0, $0.1, guardian) }
        self.api = api
        openGuard = access == nil && limitsMisses ? guardian : nil
        plainService = contract == nil && api == nil && openGuard == nil ? service : nil
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
        guard service.isKnown(head.path, of: method, in: bytes) else {
            guard let api, APIResource.contains(head.path, in: bytes) else {
                return service.answer(to: request, in: bytes, requestID: requestID)
            }
            return api.answer(to: request, in: bytes, requestID, from: source)
        }
        // Other methods do nothing and say nothing of anybody's token.
        if let contract, method == .get || method == .post {
            return contract.answer(to: request, in: bytes, requestID, from: source)
        }
        let answer = service.answer(to: request, in: bytes, requestID: requestID)
        guard let openGuard, method == .get else { return answer }
        return limited(answer, by: openGuard, from: source.address(of: head, in: bytes))
    }

    /// Counts a GET that finds nothing.
    private func limited(_ answer: Answer, by guardian: AccessGuard, from address: IPAddress?) -> Answer {
        answer.then { answer in
            guard case .now(let response) = answer, response.code == .notFound, !response.isFailure else {
                return answer
            }
            return guardian.limit(address).map(Answer.now) ?? answer
        }
    }

    /// The answer to a request that could not be read, or must not be served.
    package func answer(_ refusal: Refusal) -> Response { service.answer(refusal) }

    /// What the access log shows of a path: nil if it could hold text that clients choose.
    package func loggedPath(_ head: RequestHead, in bytes: Span<UInt8>) -> String? {
        service.isKnown(head.path, of: head.method, in: bytes) ? bytes.text(head.path) : nil
    }
}
