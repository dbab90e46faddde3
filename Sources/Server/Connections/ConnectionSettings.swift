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
    /// Answers that were no failures since the last one that was logged.
    private let unlogged = Counter()
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

    /// Whether an answer is written to the access log: every failure is, and of the others every Nth, by counting.
    ///
    /// An id without a token is no failure.
    func logs(_ response: borrowing Response) -> Bool {
        guard let interval = accessLog?.interval else { return false }
        let isFailure =
            switch response.code {
            case .none, .notFound: response.status.rawValue >= 400
            case .invalidInput, .denied, .writeFailed, .unsupportedMethod: true
            }
        if interval == 1 || isFailure { return true }
        let count = unlogged.value
        unlogged.set(count + 1 < UInt64(interval) ? count + 1 : 0)
        return count == 0
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
