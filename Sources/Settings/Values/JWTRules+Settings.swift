package import JWT

extension JWTRules {
    /// What the settings ask of tokens.
    ///
    /// - Parameter bearer: Settings of mode `bearer`, with which reading the settings succeeded.
    package init(_ bearer: Settings.Bearer) {
        self.init(
            issuer: bearer.issuer, audiences: bearer.audiences, algorithms: bearer.algorithms, types: bearer.types,
            userClaim: bearer.userClaim, leeway: Int64(bearer.leeway.components.seconds)
        )
    }
}
