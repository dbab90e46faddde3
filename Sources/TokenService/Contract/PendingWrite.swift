internal import HTTP
internal import TokenStore

/// The answer to a POST, which comes when its token is durable.
final class PendingWrite: PendingAnswer {
    private let service: TokenService
    private let id: [UInt8]
    /// Emptied when it is handed to the store, so that it is not held twice.
    private var tokenInfo: [UInt8]
    private let requestID: RequestID

    init(_ service: TokenService, _ tokenInfo: [UInt8], under id: [UInt8], _ requestID: RequestID) {
        self.service = service
        self.id = id
        self.tokenInfo = tokenInfo
        self.requestID = requestID
        super.init(bytes: Token.waitingBytes(id: id, info: tokenInfo), timeLimit: service.timeLimit)
    }

    override func start() {
        var tokenInfo: [UInt8] = []
        swap(&tokenInfo, &self.tokenInfo)
        service.store(tokenInfo, under: id) { [self] outcome in
            switch outcome {
            case .success: finish(.now(service.stored))
            case .failure(let error): finish(.now(failure(error)))
            }
        }
    }

    override func failure(_ error: StoreError) -> Response { service.writeFailed(error, requestID) }
}
