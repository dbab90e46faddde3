package import HTTP

extension Response {
    /// An answer of the contract.
    package init(_ answer: ContractAnswer) {
        self.init(body: answer.json, code: answer.code)
    }

    /// An error of HTTP in the contract's shape.
    package init(_ status: Status, _ message: String, challenge: Challenge? = nil) {
        self.init(status: status, body: ContractAnswer.httpError(status: status.rawValue, message: message).json)
        if let challenge { extras = Extras(challenge: challenge) }
    }
}
