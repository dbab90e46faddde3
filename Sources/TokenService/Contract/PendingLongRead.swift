internal import HTTP
internal import TokenStore

/// The answer to a GET whose token info is long, and is read in the part of a turn that is meant for long work.
final class PendingLongRead: PendingAnswer {
    private let service: TokenService
    private let id: [UInt8]
    private let requestID: RequestID

    init(_ service: TokenService, _ id: [UInt8], _ requestID: RequestID) {
        self.service = service
        self.id = id
        self.requestID = requestID
        super.init(bytes: Token.waitingBytes(id: id, info: []), timeLimit: service.timeLimit, takesLong: true)
    }

    override func start() {
        service.fetchLong(
            id, completion: Completion(for: self) { [self] in finish(service.answer(toLong: requestID, $0)) })
    }

    override func failure(_ error: StoreError) -> Response { service.readFailed(error, requestID) }
}
