internal import EventLoop
internal import HTTP
internal import Metrics
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

    init(_ settings: Settings, router: RequestRouter, accessLog: AccessLog?) {
        self.router = router
        plainService = router.plainService
        limits = settings.limits
        deadlines = Deadlines(settings.timeouts)
        https = HTTPSPolicy(settings)
        self.accessLog = accessLog
    }

    /// The time limits of `Settings.Timeouts` in nanoseconds.
    struct Deadlines {
        let head: Nanoseconds
        let body: Nanoseconds
        let idle: Nanoseconds
        /// How long input is read and dropped before the connection is closed; see `Connection.State.lingering`.
        let linger = Nanoseconds(.seconds(2))

        init(_ timeouts: Settings.Timeouts) {
            head = Nanoseconds(timeouts.head)
            body = Nanoseconds(timeouts.body)
            idle = Nanoseconds(timeouts.idle)
        }
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
