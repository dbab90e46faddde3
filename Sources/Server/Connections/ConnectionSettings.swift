internal import EventLoop
internal import HTTP
internal import Settings
internal import System
internal import TokenService

/// The settings of one loop's connections, and the router that answers their requests.
///
/// A reload replaces them as a whole; a connection takes over new ones between two requests. Constants of a class are read
/// without a check at run time.
///
/// Belongs to the loop's thread.
final class ConnectionSettings {
    let router: RequestRouter
    /// The router's; here, so that most requests need not ask it.
    let plainService: TokenService?
    let limits: RequestLimits
    let deadlines: Deadlines
    let https: HTTPSPolicy
    /// Nil for none.
    let accessLog: AccessLog?
    let hasRequestIDs: Bool
    /// Which name of a client's certificate is the user.
    let certificateName: CertificateName

    init(_ settings: Settings, router: RequestRouter, accessLog: AccessLog?) {
        self.router = router
        plainService = router.plainService
        limits = settings.limits
        deadlines = Deadlines(settings.timeouts)
        https = HTTPSPolicy(settings)
        self.accessLog = accessLog
        hasRequestIDs = settings.hasRequestIDs
        certificateName = settings.access.certificateName
    }

    /// The time limits of `Settings.Timeouts` in nanoseconds.
    struct Deadlines {
        let head: Nanoseconds
        let body: Nanoseconds
        let handshake: Nanoseconds
        let idle: Nanoseconds
        let send: Nanoseconds
        /// How long input is read and dropped before the connection is closed; see `Connection.finish`.
        let linger = Nanoseconds(.seconds(2))

        init(_ timeouts: Settings.Timeouts) {
            head = Nanoseconds(timeouts.head)
            body = Nanoseconds(timeouts.body)
            handshake = Nanoseconds(timeouts.handshake)
            idle = Nanoseconds(timeouts.idle)
            send = Nanoseconds(timeouts.send)
        }
    }
}
