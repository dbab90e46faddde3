import HTTP
import JWT
import Logging
import Metrics
import Settings
import Synchronization
import System
import TokenService

extension AccessResources {
    /// The router of one loop.
    ///
    /// - Parameters:
    ///   - settings: The settings in force.
    ///   - service: The loop's.
    ///   - trail: The loop's; nil without an audit log.
    ///   - metrics: The loop's.
    ///   - logger: For what is wrong with a proxy.
    ///   - callbacks: Makes what answers Facebook.
    func router(
        _ settings: Settings, _ service: TokenService, _ trail: AuditTrail?, _ metrics: LoopMetrics, _ logger: Logger,
        callbacks: (AppSecretFile, Departures) -> FacebookCallbacks
    ) -> RequestRouter {
        let guardian = AccessGuard(limiter: settings.access.failures == nil ? nil : failures, trail: trail) {
            metrics.accessFailures.add($0)
        }
        let maxAge = settings.access.session.maxAge
        return RequestRouter(
            service, access: mode(settings, metrics, logger).map { (UserAccess($0), sessions) }, guardian: guardian,
            api: apiKeys.map { keys in
                BackendAPI(
                    service, keys: { keys.content }, sessionMaxAge: Int64(maxAge.components.seconds),
                    sessionsPerUser: Settings.Session.perUser, guardian)
            },
            callbacks: appSecret.map { callbacks($0, departures) })
    }

    /// How requests identify their users; nil in mode `open`.
    private func mode(_ settings: Settings, _ metrics: LoopMetrics, _ logger: Logger) -> UserAccess.Mode? {
        switch settings.access.mode {
        case .open: nil
        case .session: .session(idleTimeout: Int64(settings.access.session.idleTimeout.components.seconds))
        case .bearer:
            jwtKeys.map {
                .bearer(isReadInUniqueID: settings.access.bearer.isReadInUniqueID, verification(by: $0, metrics))
            }
        case .header:
            .header(name: Array(settings.access.headerName.lowercased().utf8)) { [self] name in
                guard !hasWarnedOfNobody.exchange(true, ordering: .relaxed) else { return }
                let header = settings.access.headerName
                logger.warning(
                    """
                    a proxy sends \(name) in \(header), which names nobody and gets 401; send it only after a login, with Apache \
                    by RequestHeader set \(header) expr=%{REMOTE_USER}
                    """)
            }
        case .certificate: .certificate(settings.access.certificateName)
        }
    }

    private func verification(by keys: JWTKeyFile, _ metrics: LoopMetrics) -> UserAccess.Verify {
        { (token) throws(AccessFailure) in
            do throws(JWTRejection) {
                return try keys.content.verify(token, at: LoopContext.unixTime).user
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
