import HTTP
import Settings
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
    /// A third of `timeouts.body`, that, and `timeouts.idle`.
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
            mode: settings.https.mode, trusted: settings.trustedProxies, publicHost: settings.https.publicHost,
            tlsPort: ListenAddress.tlsPort(of: settings.listen))
        self.accessLog = accessLog
        findsClient = accessLog != nil || plainService == nil
    }
}
