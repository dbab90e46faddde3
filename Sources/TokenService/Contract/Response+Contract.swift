package import HTTP

extension Response {
    /// An answer of the contract.
    package init(_ answer: ContractAnswer) {
        self.init(body: answer.json, code: answer.code)
    }

    /// The answer to a request that the server, and not its client or what is stored, is the reason to fail.
    ///
    /// Its body is the one that `token.php` gives for an id without a token. `Retry-After` (RFC 9110, section 10.2.3), which no
    /// other answer with status 200 has, tells the two apart.
    static func failure(isWrite: Bool) -> Response {
        var response = Response(isWrite ? .writeFailed : .notFound)
        response.extras = Extras(retryAfter: retryAfter)
        return response
    }

    /// Seconds: a store works again two seconds after the cause has gone, at most.
    private static let retryAfter = 2

    /// An error of HTTP in the contract's shape.
    package init(_ status: Status, _ message: String, challenge: Challenge? = nil) {
        self.init(status: status, body: ContractAnswer.httpError(status: status.rawValue, message: message).json)
        if let challenge { extras = Extras(challenge: challenge) }
    }
}
