#if TokenRefresh
import System
import TokenStore

/// A token as it was read from the store.
struct StoredToken: Sendable {
    let id: [UInt8]
    let token: RefreshableToken
    let version: TokenVersion
    /// Seconds since 1970.
    let writtenAt: Int64

    /// Nil for a token info that the provider cannot refresh.
    ///
    /// - Parameters:
    ///   - writtenAt: By the store's clock.
    ///   - obtainedAt: The same by the wall clock; nil if the token's times are not needed.
    init?(
        _ info: [UInt8], _ version: TokenVersion, of id: [UInt8], writtenAt: Int64, obtainedAt: Int64? = nil,
        _ provider: RefreshProvider
    ) {
        guard let token = RefreshableToken(info, writtenAt: obtainedAt ?? writtenAt, by: provider) else { return nil }
        (self.id, self.token, self.version, self.writtenAt) = (id, token, version, writtenAt)
    }
}

/// Decides which tokens are exchanged now, and which requests wait for that.
///
/// It does nothing itself, and callers pass the time. What has to survive a restart is in the tokens' marks, not here.
struct RefreshState {
    /// Called when an exchange is over, or has taken too long for a request, with what to tell the client if its token is still expired.
    typealias Wake = @Sendable (RefreshAdvice) -> Void

    /// What to do about a token that is due.
    enum Decision: Equatable {
        /// Exchange it, and call `noteEndOfExchange` and `end` afterwards.
        case exchange
        /// Look at it again and again while another process exchanges it, and call `end` afterwards.
        case watch
        /// Wait: an exchange or a watch of this token is under way, or its exchange is in the queue.
        case join
        /// Nothing now.
        case advise(RefreshAdvice)
    }

    /// The most exchanges at a time; each occupies a thread for as long as the provider takes.
    static let exchangeLimit = 32
    /// The most tokens in the queue.
    private static let queueLimit = 1_000
    /// The most ids in each of the tables below.
    ///
    /// One that is full is emptied, which costs a further try for each id.
    private static let memoryLimit = 10_000
    /// After this time, whoever has marked a token is no longer exchanging it; the client library waits as long.
    static let markTime = Nanoseconds(.seconds(60))

    /// Requests that wait, by the token's id and the request's number.
    private var flights: [[UInt8]: [Int: Wake]] = [:]
    private var lastNumber = 0
    private(set) var exchanging = 0
    /// Expired tokens with waiting requests that are exchanged as soon as fewer exchanges are under way, the first one first.
    private var queue: [StoredToken] = []
    /// When this process first saw the marks of others.
    private var marks: [[UInt8]: (version: TokenVersion, since: MonotonicTime)] = [:]
    /// Logins whose tokens are not exchanged before some moment, by their digests, and how often in a row that was so.
    private var holds: [[UInt8]: (until: MonotonicTime, count: Int)] = [:]
    /// Until when an id's tokens are not exchanged, as the provider has refused one of them or failed for it, and how often it has.
    ///
    /// While the provider fails for everybody, only the id for which that began is counted.
    private var idHolds: [[UInt8]: (until: MonotonicTime, count: Int)] = [:]
    /// The digest of the login whose token was last rejected, if the provider has accepted none since.
    private var rejected: [UInt8]?
    /// How often the provider has failed since it last answered as it should.
    private(set) var failures = 0
    /// Why it has last failed; nil if it works.
    private(set) var fault: ProviderFault?
    private var pausedUntil = MonotonicTime(nanoseconds: 0)
    /// Whether an exchange with an unknown outcome may be repeated, because the provider has kept the refresh tokens in all others.
    private(set) var mayRepeat: Bool
    private var hasReplaced = false
    var counts = RefreshMetrics.Counts()
    /// Whether the server stops; no exchange begins then.
    var isDraining = false

    /// - Parameter isRepeatable: Whether an exchange at this provider never uses the old token up.
    init(isRepeatable: Bool) {
        mayRepeat = isRepeatable
        for fault in ProviderFault.allCases { counts.failed[fault.rawValue] = 0 }
    }

    // MARK: - Decisions

    /// Decides what to do about a token that is due.
    ///
    /// - Parameter waits: Whether a request waits for it because it has expired.
    mutating func decide(about stored: StoredToken, waits: Bool, at now: MonotonicTime) -> Decision {
        let id = stored.id
        if stored.token.mark == .spent { return .advise(.login) }
        if flights[id] != nil { return .join }
        switch stored.token.mark {
        case .underWay:
            let known = marks[id].flatMap { $0.version == stored.version ? $0 : nil }
            if marks.count >= Self.memoryLimit { marks = [:] }
            marks[id] = known ?? (stored.version, now)
            guard let known, !(now - known.since < Self.markTime) else {
                guard waits else { return .advise(.later) }
                flights[id] = [:]
                return .watch
            }
            guard mayRepeat else { return .advise(.login) }
        case .spent, nil: marks[id] = nil
        }
        let isHeld = [holds[stored.token.loginDigest], idHolds[id]].contains { $0.map { now < $0.until } ?? false }
        // After a failure, one exchange shows whether the provider works again.
        let mayBegin = failures == 0 ? exchanging < Self.exchangeLimit : exchanging == 0 && !(now < pausedUntil)
        let mayQueue = failures == 0 && waits && queue.count < Self.queueLimit
        guard mayBegin || mayQueue, !isHeld, !isDraining else { return .advise(.later) }
        flights[id] = [:]
        if !mayBegin {
            queue.append(stored)
            return .join
        }
        exchanging += 1
        return .exchange
    }

    /// Adds a request to those that wait for an id; returns its number.
    mutating func join(_ id: [UInt8], _ wake: @escaping Wake) -> Int {
        lastNumber += 1
        flights[id]?[lastNumber] = wake
        return lastNumber
    }

    /// Ends the wait of a request that has waited long enough; nil if it waits no longer.
    mutating func leave(_ id: [UInt8], _ number: Int) -> Wake? { flights[id]?.removeValue(forKey: number) }

    func isAwaited(_ id: [UInt8]) -> Bool { flights[id]?.isEmpty == false }

    /// Notes the end of an exchange; requests may still wait for another process.
    ///
    /// - Returns: The token of the queue that is to be exchanged next, and the ids of those that leave the queue without an exchange,
    ///   for which `end` is to be called.
    mutating func noteEndOfExchange() -> (next: StoredToken?, givenUp: [[UInt8]]) {
        exchanging -= 1
        var givenUp: [[UInt8]] = []
        while !queue.isEmpty {
            let next = queue.removeFirst()
            if failures == 0, !isDraining, isAwaited(next.id) {
                exchanging += 1
                return (next, givenUp)
            }
            givenUp.append(next.id)
        }
        return (nil, givenUp)
    }

    /// Ends what `decide` began, after `noteEndOfExchange`; returns the requests to be woken.
    mutating func end(_ id: [UInt8]) -> [Wake] { flights.removeValue(forKey: id).map { Array($0.values) } ?? [] }

    // MARK: - Outcomes

    /// Notes what the provider has answered.
    ///
    /// - Returns: Whether the provider has begun to fail, or works again, which is worth a line in the log.
    mutating func note(_ outcome: ProviderOutcome, for stored: StoredToken, at now: MonotonicTime) -> Bool {
        let hadFailed = failures > 0
        let login = stored.token.loginDigest
        var isTrouble = false
        switch outcome {
        case .tokens(let tokens):
            if let refreshToken = stored.token.refreshToken {
                hasReplaced = hasReplaced || !tokens.keeps(refreshToken)
                mayRepeat = !hasReplaced
            }
            (holds[login], rejected) = (nil, nil)
        case .refused:
            (holds[login], rejected) = (nil, nil)
            // A user could store one made-up token after the other. If all were sent, the provider might lock out this server.
            hold(stored.id, for: 5, at: now)
        case .rejected(let isExplained):
            // Two logins in a row without a reason: some providers reject everything like this while the secret is wrong. A login that
            // was rejected before says nothing new.
            let isNew = holds[login] == nil && !isExplained
            if isNew, rejected != nil {
                isTrouble = true
                pause(.rejected, nil, for: stored.id, at: now)
            } else {
                isTrouble = !isExplained && fault == .rejected
                counts.failed[ProviderFault.rejected.rawValue, default: 0] += 1
            }
            if isNew { rejected = login }
            hold(stored, at: now)
        case .failed(let fault, let retryAfter):
            isTrouble = true
            pause(fault, retryAfter, for: stored.id, at: now)
        case .unknown(let fault, let retryAfter):
            isTrouble = true
            pause(fault, retryAfter, for: stored.id, at: now)
        }
        if !isTrouble { (failures, fault) = (0, nil) }
        return isTrouble != hadFailed
    }

    /// Leaves one token alone: for a minute the first time, each further time for twice as long, up to about an hour.
    mutating func hold(_ stored: StoredToken, at now: MonotonicTime) {
        let login = stored.token.loginDigest
        let count = (holds[login]?.count ?? 0) + 1
        if holds.count >= Self.memoryLimit { holds = [:] }
        holds[login] = (now + Duration.seconds(60 << min(count - 1, 6)), count)
    }

    /// Leaves the provider alone: for a second after its first failure, each further time for twice as long, up to five minutes; or for
    /// as long as it says, up to an hour.
    private mutating func pause(_ fault: ProviderFault, _ retryAfter: Int?, for id: [UInt8], at now: MonotonicTime) {
        failures += 1
        self.fault = fault
        counts.failed[fault.rawValue, default: 0] += 1
        let seconds = max(min(1 << min(failures - 1, 9), 300), min(retryAfter ?? 0, 3_600))
        pausedUntil = now + Duration.seconds(seconds)
        if fault != .unreachable { hold(id, for: seconds, at: now) }
    }

    /// Leaves an id's tokens alone, as the provider may fail for this user's tokens only, and others are to be tried first.
    ///
    /// That is twice the given time at first. It doubles each time that the provider refuses one of the tokens, or begins to fail with
    /// this id, up to five minutes.
    private mutating func hold(_ id: [UInt8], for seconds: Int, at now: MonotonicTime) {
        let known = idHolds[id].flatMap { now < $0.until + Duration.seconds(3_600) ? $0.count : nil } ?? 0
        let count = failures <= 1 ? known + 1 : max(known, 1)
        if idHolds.count >= Self.memoryLimit { idHolds = [:] }
        idHolds[id] = (now + Duration.seconds(max(2 * seconds, min(seconds << min(count, 12), 300))), count)
    }
}
#endif
