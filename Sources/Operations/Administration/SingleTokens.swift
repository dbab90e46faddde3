internal import FoundationEssentials
internal import HTTP
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

    /// `{"unique_id":"..."}`; in the access modes with users, the id is the user.
    private struct Body: Decodable {
        let uniqueID: String

        private enum CodingKeys: String, CodingKey {
            // The conversion from snake case does not restore acronyms.
            case uniqueID = "uniqueId"
        }
    }

    /// Sends the store a request about the id in the body, on a thread of its own, because it waits for the store.
    func answer<Request: StoreRequest, Reply: Encodable & Sendable>(
        _ request: AdministrationStream.Received, from requester: Requester, _ makeRequest: (_ id: String) -> Request,
        _ makeReply: @escaping @Sendable (Request.Reply) -> Reply
    ) async -> AdministrationAnswer {
        guard let text = request.body else {
            let limit = AdministrationStream.Received.bodyLimit
            return .error(.contentTooLarge, "the body is longer than \(limit) bytes")
        }
        guard let body = try? OperationsJSON.decode(Body.self, from: Data(text)) else {
            return .error(.badRequest, #"the body has to be JSON with the id of one token: {"unique_id":"..."}"#)
        }
        do throws(StoreError) {
            _ = try StoredText.id(body.uniqueID)
        } catch {
            return .error(.badRequest, "\(error)")
        }
        let work = makeRequest(body.uniqueID)
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
