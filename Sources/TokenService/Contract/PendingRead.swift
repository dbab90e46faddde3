internal import HTTP
internal import TokenStore

/// The answer to a GET whose token the store has not read at once.
final class PendingRead: PendingAnswer {
    private let service: TokenService
    private let id: [UInt8]
    private let ticket: AnswerCache.Ticket?
    private let requestID: RequestID

    init(_ service: TokenService, _ id: [UInt8], _ ticket: AnswerCache.Ticket?, _ requestID: RequestID) {
        self.service = service
        self.id = id
        self.ticket = ticket
        self.requestID = requestID
        super.init(bytes: Token.waitingBytes(id: id, info: []), timeLimit: service.timeLimit)
    }

    func finish(_ outcome: Result<Fetched, StoreError>) {
        finish(service.answer(to: id, ticket, requestID, outcome))
    }

    override func failure(_ error: StoreError) -> Response { service.readFailed(error, requestID) }
}
