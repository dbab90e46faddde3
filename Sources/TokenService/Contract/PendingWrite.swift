internal import HTTP
internal import TokenStore

/// The answer to a POST, which comes when its token is durable.
final class PendingWrite: PendingAnswer {
    private let service: TokenService
    private let id: [UInt8]
    /// Emptied when it is handed to the store, so that it is not held twice.
    private var tokenInfo: [UInt8]
    private let condition: WriteCondition
    private let requestID: RequestID
    private let refusal: (StoreError) -> Response?

    init(
        _ service: TokenService, _ tokenInfo: [UInt8], under id: [UInt8], _ condition: WriteCondition,
        _ requestID: RequestID, refusal: @escaping (StoreError) -> Response?
    ) {
        self.service = service
        self.id = id
        self.tokenInfo = tokenInfo
        self.condition = condition
        self.requestID = requestID
        self.refusal = refusal
        super.init(bytes: Token.waitingBytes(id: id, info: tokenInfo), timeLimit: service.timeLimit)
    }

    override func start() {
        var tokenInfo: [UInt8] = []
        swap(&tokenInfo, &self.tokenInfo)
        let completion = Completion<TokenVersion>(for: self) { [self] outcome in
            switch outcome {
            case .success(let version): finish(.now(service.stored(version)))
            case .failure(let error): finish(.now(failure(error)))
            }
        }
        service.handle.store(tokenInfo, under: id, if: condition, completion: completion)
    }

    override func failure(_ error: StoreError) -> Response {
        refusal(error) ?? service.writeFailed(error, requestID)
    }
}
