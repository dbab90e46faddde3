internal import EventLoop
internal import HTTP
internal import Settings
internal import System
internal import TokenService

/// What one reading of the settings asks of a loop's connections.
///
/// Belongs to the loop's thread. A connection keeps one from the start of a request to its end: fields of a class that cannot
/// change are read without a check.
final class ConnectionSettings {
    let service: TokenService
    let limits: RequestLimits
    let deadlines: Deadlines
    let https: HTTPSPolicy
    /// Nil for none.
    let accessLog: AccessLog?
    let hasRequestIDs: Bool

    init(_ settings: Settings, service: TokenService, accessLog: AccessLog?) {
        self.service = service
        limits = settings.limits
        deadlines = Deadlines(settings.timeouts)
        https = HTTPSPolicy(settings)
        self.accessLog = accessLog
        hasRequestIDs = settings.hasRequestIDs
    }

    /// The times of `Settings.Timeouts`, as the loop counts them.
    struct Deadlines {
        let head: Nanoseconds
        let body: Nanoseconds
        let handshake: Nanoseconds
        let idle: Nanoseconds
        let send: Nanoseconds
        /// How long input is read on after an answer that closes the connection (see `Connection.linger`).
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
