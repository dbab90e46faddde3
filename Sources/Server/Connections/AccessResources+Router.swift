internal import JWT
internal import Metrics
internal import Settings
internal import System
internal import TokenService

extension AccessResources {
    /// The router of one loop.
    ///
    /// - Parameters:
    ///   - settings: Those in force.
    ///   - service: The loop's.
    ///   - trail: The loop's; nil without an audit log.
    ///   - tokens: The JWTs that the loop has verified; nil in other modes than `bearer`.
    ///   - metrics: The loop's.
    func router(
        _ settings: Settings, _ service: TokenService, _ trail: AuditTrail?, _ tokens: VerifiedTokens?,
        _ metrics: LoopMetrics
    ) -> RequestRouter {
        let guardian = AccessGuard(limiter: settings.access.failures == nil ? nil : failures, trail: trail) {
            metrics.accessFailures.add($0)
        }
        let session = settings.access.session
        let limits = BackendAPI.SessionLimits(
            maxAge: Int64(session.maxAge.components.seconds), perUser: session.perUser)
        return RequestRouter(
            service, access: mode(settings, tokens, metrics).map { (UserAccess($0), sessions) }, guardian: guardian,
            api: apiKeys.map { keys in BackendAPI(service, keys: { keys.content }, limits: limits, guardian) })
    }

    /// How requests show their users; nil in mode `open`.
    private func mode(
        _ settings: Settings, _ tokens: VerifiedTokens?, _ metrics: LoopMetrics
    ) -> UserAccess.Mode? {
        switch settings.access.mode {
        case .open: nil
        case .session:
            .session(
                UserAccess.SessionRules(
                    idleTimeout: Int64(settings.access.session.idleTimeout.components.seconds)))
        case .bearer: tokens.map { .bearer(bearer($0, settings, metrics)) }
        case .header: .header(name: Array(settings.access.headerName.lowercased().utf8))
        case .certificate: .certificate(settings.access.certificateName)
        }
    }

    private func bearer(
        _ tokens: VerifiedTokens, _ settings: Settings, _ metrics: LoopMetrics
    ) -> UserAccess.BearerRules {
        UserAccess.BearerRules(isReadInUniqueID: settings.access.bearer.isReadInUniqueID) {
            (token, unixTime, thumbprint) throws(AccessFailure) in
            do throws(JWTRejection) {
                return try tokens.verify(token, at: unixTime, certificateThumbprint: thumbprint).user
            } catch {
                metrics.tokenRejections.add(error)
                switch error {
                case .expired: throw .expired
                case .tooLong: throw .tooLong
                default: throw .invalidToken
                }
            }
        }
    }
}
