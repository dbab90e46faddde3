internal import HTTP
internal import TokenService
internal import TokenStore

/// Answers requests of operators about the token of one id, which is in the body, as URLs are in logs and histories.
///
/// Belongs to the administration's thread.
struct SingleTokens: Sendable {
    private let administrators: Administrators
    private let acts: ActLog

    init(_ administrators: Administrators, _ acts: ActLog) {
        self.administrators = administrators
        self.acts = acts
    }

    /// Sends the store a request about the id in the body, on a thread of its own, because it waits for the store.
    ///
    /// The body is `{"unique_id":"..."}`; in the access modes with users, the id is the user. Of equal names the last counts, as in
    /// the contract; with `JSONDecoder` it would be the first.
    func answer<Request: StoreRequest, Reply: Encodable & Sendable>(
        _ request: AdministrationStream.Received, from requester: Requester, _ makeRequest: (_ id: String) -> Request,
        _ makeReply: @escaping @Sendable (Request.Reply) -> Reply
    ) async -> AdministrationAnswer {
        guard let text = request.body else {
            let limit = AdministrationStream.Received.bodyLimit
            return .error(.contentTooLarge, "the body is longer than \(limit) bytes")
        }
        guard let bytes = JSONBody(ByteRange(0, text.count), of: text.span)?.uniqueID,
            let id = String(validating: bytes, as: UTF8.self)
        else {
            return .error(.badRequest, #"the body has to be JSON with the id of one token: {"unique_id":"..."}"#)
        }
        do throws(StoreError) {
            _ = try StoredText.id(id)
        } catch {
            return .error(.badRequest, "\(error)")
        }
        let work = makeRequest(id)
        return await Task(executorPreference: CommandThread()) { [administrators, acts] in
            do throws(StoreError) {
                let reply = try await work.answer(administrators.administrator(for: requester)) { _ in }
                if let act = work.act(reply) { acts.note(act, by: requester) }
                return AdministrationAnswer(json: makeReply(reply))
            } catch {
                acts.note(failure: error, of: Request.name.rawValue, by: requester)
                return AdministrationAnswer.error(.internalError, "\(error)")
            }
        }.value
    }
}
