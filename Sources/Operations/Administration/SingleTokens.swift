internal import FoundationEssentials
internal import HTTP
internal import TokenStore

/// Answers requests of operators about the token of one id, which is in the body, as URLs are in logs and histories.
///
/// Belongs to the administration's thread.
struct SingleTokens: Sendable {
    private let administrator: any StoreAdministrator

    init(_ administrator: any StoreAdministrator) {
        self.administrator = administrator
    }

    /// `{"unique_id":"..."}`; in the access modes with users, the id is the user.
    private struct Body: Decodable {
        let uniqueID: String

        private enum CodingKeys: String, CodingKey {
            // The conversion from snake case does not restore acronyms.
            case uniqueID = "uniqueId"
        }
    }

    /// Has something done with the id of a request, on a thread of its own, as it waits for the store.
    func answer<Reply: Encodable & Sendable>(
        _ request: AdministrationStream.Received,
        _ carryOut:
            @escaping @Sendable (
                _ id: String, _ administrator: any StoreAdministrator
            ) async throws(StoreError) -> Reply
    ) async -> AdministrationAnswer {
        guard let text = request.body else {
            let limit = AdministrationStream.Received.bodyLimit
            return .error(.contentTooLarge, "the body is longer than \(limit) bytes")
        }
        guard let body = try? OperationsJSON.decode(Body.self, from: Data(text)) else {
            return .error(.badRequest, #"the body has to be JSON with the id of one token: {"unique_id":"..."}"#)
        }
        let id = body.uniqueID
        do throws(StoreError) {
            _ = try StoredText.id(id)
        } catch {
            return .error(.badRequest, "\(error)")
        }
        return await Task(executorPreference: CommandThread()) { [administrator] in
            do throws(StoreError) {
                return AdministrationAnswer(json: try await carryOut(id, administrator))
            } catch {
                return AdministrationAnswer.error(.internalError, "\(error)")
            }
        }.value
    }
}
