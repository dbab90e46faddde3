internal import HTTP
internal import TokenStore

/// The answer to a request for which the store does something, and which comes when that is done.
final class PendingOperation<Outcome>: PendingAnswer {
    private let operation: (Completion<Outcome>) -> Void
    private let answer: (Outcome) -> Answer
    private let refusal: (StoreError) -> Response

    /// - Parameters:
    ///   - bytes: Bytes of memory that are held until the answer comes.
    ///   - timeLimit: How long the client waits.
    ///   - operation: Begins the operation, and calls its completion once.
    ///   - answer: The answer to what was done.
    ///   - refusal: Reports an error and gives its answer.
    init(
        bytes: Int, timeLimit: Duration?,
        operation: @escaping (Completion<Outcome>) -> Void,
        answer: @escaping (Outcome) -> Answer, refusal: @escaping (StoreError) -> Response
    ) {
        self.operation = operation
        self.answer = answer
        self.refusal = refusal
        super.init(bytes: bytes, timeLimit: timeLimit)
    }

    override func start() {
        operation(
            Completion(for: self) { [self] outcome in
                switch outcome {
                case .success(let outcome): finish(answer(outcome))
                case .failure(let error): finish(.now(refusal(error)))
                }
            })
    }

    override func failure(_ error: StoreError) -> Response { refusal(error) }
}
