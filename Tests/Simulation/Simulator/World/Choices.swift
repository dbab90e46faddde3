import HTTP
import Settings

/// What a seed's world is like: most seeds have few of the difficulties, so that each is met with and without the others.
struct Choices {
    let clients: Int
    let ids: Int
    let hasBadClients: Bool
    let hasMalformedRequests: Bool
    let hasLongTokens: Bool
    /// Whether each connection begins with a PROXY header.
    let hasProxyHeaders: Bool

    let bodyTime: UInt64
    var headTime: UInt64 { bodyTime / 3 }
    let idleTime: UInt64
    /// The limit of connections; nil for one that is never reached.
    let connectionLimit: Int?
    /// Whether `limits.buffers` is so low that it is reached.
    let hasFewBuffers: Bool
    let bufferLimit: Int

    /// Bytes of the answer cache; nil without one.
    let cacheLimit: Int?
    /// Whether reads of the store end later.
    let readsLater: Bool
    /// Whether the store fails at times.
    let storeFails: Bool
    /// How long a request waits for the store, in seconds; nil without limit.
    let storeTime: Int?
    /// Seconds after which tokens expire; nil for never.
    let retention: Int64?

    /// Whether system calls fail at times as the kernel has no memory or no descriptors.
    let kernelFails: Bool
    /// How many things happen in a row before the loop is told of their events.
    let burst: Int
    /// Whether reading the clock takes long, so that the budgets of a turn are used up.
    let isSlow: Bool
    /// Whether the wall clock is set.
    let wallClockJumps: Bool
    /// Things that operators do meanwhile: remove tokens, reload, drain.
    let operatorActs: Int

    init(_ random: Randomness) {
        let isCrowd = random.happens(oneIn: 25)
        clients = isCrowd ? 20 + random.below(20) : 1 + random.below(random.among([2, 4, 7]))
        ids = 1 + random.below(3)
        hasBadClients = random.happens(oneIn: 2)
        hasMalformedRequests = random.happens(oneIn: 3)
        hasLongTokens = random.happens(oneIn: 16)
        hasProxyHeaders = random.happens(oneIn: 5)
        bodyTime = .seconds(random.among([15, 30]))
        idleTime = .seconds(random.among([8, 75]))
        connectionLimit = random.happens(oneIn: 10) ? 1 + random.below(3) : nil
        hasFewBuffers = random.happens(oneIn: 5)
        bufferLimit = hasFewBuffers ? random.among([600, 2_000, 40_000, 80_000]) : 64 << 20
        cacheLimit = random.happens(oneIn: 4) ? nil : random.among([1 << 20, 1 << 20, 48 << 10])
        readsLater = random.happens(oneIn: 3)
        storeFails = random.happens(oneIn: 3)
        storeTime = random.happens(oneIn: 5) ? 1 + random.below(5) : nil
        retention = random.happens(oneIn: 6) ? Int64(1 + random.below(20)) : nil
        kernelFails = random.happens(oneIn: 8)
        burst = isCrowd ? 40 : 2
        isSlow = random.happens(oneIn: isCrowd ? 2 : 4)
        wallClockJumps = random.happens(oneIn: 4)
        operatorActs = random.happens(oneIn: 2) ? 0 : 1 + random.below(3)
    }

    /// The server's settings.
    var settings: Settings {
        var settings = Settings()
        settings.timeouts.body = .nanoseconds(bodyTime)
        settings.timeouts.idle = .nanoseconds(idleTime)
        return settings
    }
}
