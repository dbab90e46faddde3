import EventLoop
import HTTP
import JWT
import Logging
import Metrics
import Settings
import Synchronization
import System
import TokenService

/// The settings of one loop's connections, and the router that answers their requests.
///
/// A reload replaces them as a whole; a connection takes over new ones between two requests. Constants of a class are read
/// without a check at run time.
///
/// Belongs to the loop's thread.
final class ConnectionSettings {
    let router: RequestRouter
    /// The router's, kept here so that most requests need not ask the router.
    let plainService: TokenService?
    let limits: RequestLimits
    /// `timeouts.head`, `timeouts.body` and `timeouts.idle`.
    let headTime: Nanoseconds
    let bodyTime: Nanoseconds
    let idleTime: Nanoseconds
    let https: HTTPSPolicy
    /// Nil if it is off.
    let accessLog: AccessLog?
    /// Whether the client's address is needed: for the access log, or by the router.
    let findsClient: Bool

    init(_ settings: Settings, router: RequestRouter, accessLog: AccessLog?) {
        self.router = router
        plainService = router.plainService
        limits = settings.limits
        headTime = Nanoseconds(settings.timeouts.head)
        bodyTime = Nanoseconds(settings.timeouts.body)
        idleTime = Nanoseconds(settings.timeouts.idle)
        https = HTTPSPolicy(
            mode: settings.https.mode, trusted: settings.trustedProxies, publicHost: settings.https.publicHost)
        self.accessLog = accessLog
        findsClient = accessLog != nil || plainService == nil
    }
}

/// Generates request ids for one loop.
///
/// Ids are distinct, but not secret: a counter with a random start, mixed by a bijection so that neighbours in a log do not look
/// alike (SplitMix64, in Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
struct RequestIDs {
    private var state = UInt64.random(in: .min ... .max)

    /// An id that no other request has.
    mutating func next() -> RequestID {
        state &+= 0x9E37_79B9_7F4A_7C15
        var number = state
        number = (number ^ (number >> 30)) &* 0xBF58_476D_1CE4_E5B9
        number = (number ^ (number >> 27)) &* 0x94D0_49BB_1331_11EB
        return .made(number ^ (number >> 31))
    }
}

extension AccessResources {
    /// The router of one loop.
    ///
    /// - Parameters:
    ///   - settings: The settings in force.
    ///   - service: The loop's.
    ///   - trail: The loop's; nil without an audit log.
    ///   - metrics: The loop's.
    ///   - logger: For what is wrong with a proxy.
    func router(
        _ settings: Settings, _ service: TokenService, _ trail: AuditTrail?, _ metrics: LoopMetrics, _ logger: Logger
    ) -> RequestRouter {
        let guardian = AccessGuard(limiter: settings.access.failures == nil ? nil : failures, trail: trail) {
            metrics.accessFailures.add($0)
        }
        let session = settings.access.session
        return RequestRouter(
            service, access: mode(settings, metrics, logger).map { (UserAccess($0), sessions) }, guardian: guardian,
            api: apiKeys.map { keys in
                BackendAPI(
                    service, keys: { keys.content }, sessionMaxAge: Int64(session.maxAge.components.seconds),
                    sessionsPerUser: session.perUser, guardian)
            })
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
        { (token, unixTime) throws(AccessFailure) in
            do throws(JWTRejection) {
                return try keys.content.verify(token, at: unixTime).user
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
