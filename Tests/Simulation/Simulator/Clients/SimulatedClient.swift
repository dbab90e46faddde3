/// A client with one connection, which acts when the scheduler lets it.
final class SimulatedClient: CustomStringConvertible {
    let number: Int
    let habits: Habits
    /// What the connection begins with; nil where the listener requires none.
    let proxyHeader: ProxyHeader?
    private(set) var requests: [ClientRequest]
    private let bytes: [UInt8]
    private unowned let world: World
    private(set) lazy var checker = AnswerChecker(self, world)
    /// Nil before the server accepts.
    var socket: SimulatedSocket?
    /// What happened before that.
    private(set) var early = (bytes: [UInt8](), hasEnd: false, isReset: false)

    private var hasConnected = false
    private(set) var sent = 0
    /// Requests whose last byte was sent.
    private(set) var sentRequests = 0
    private(set) var hasEndedSending = false
    private(set) var hasClosed = false
    private(set) var hasReset = false
    /// The server does not listen any more.
    var isRefused = false
    /// The server sent to a closed connection.
    var mustReset = false
    private var isPaused = false
    private(set) var hasPaused = false
    /// When it has rested from its last piece.
    private var restedAt: UInt64 = 0
    /// It ends the connection as soon as it can, as the seed comes to its end.
    var leaves = false

    var description: String { "client \(number)" }

    init(
        _ number: Int, _ habits: Habits, _ proxyHeader: ProxyHeader?, _ requests: [ClientRequest], _ world: World
    ) {
        self.number = number
        self.habits = habits
        self.proxyHeader = proxyHeader
        self.world = world
        let header = proxyHeader?.bytes ?? []
        var end = header.count
        self.requests = requests.map { request in
            end += request.bytes.count
            var request = request
            request.end = end
            return request
        }
        bytes = header + requests.flatMap(\.bytes)
    }

    func note(_ event: StaticString, _ count: Int = 0) { world.note(event, number, count) }

    /// Whether it takes part in the connection no more.
    var isGone: Bool { hasClosed || hasReset || isRefused }
    private var mayReadNothing: Bool {
        switch habits.reading {
        case .eager, .slow: false
        case .pauses: !hasPaused
        case .never: true
        }
    }
    /// Whether it has read all that was sent to it.
    var hasReadAll: Bool { (socket?.unread ?? 0) == 0 }
    var isConnected: Bool { hasConnected }

    // MARK: - Acting

    /// Does one thing; false if it has nothing to do now.
    func act(_ random: Randomness) -> Bool {
        if mustReset && !hasReset { return reset() }
        guard !isGone else { return false }
        guard hasConnected else {
            hasConnected = true
            note("connects")
            return world.connect(self)
        }
        if world.kernel.clock.now < restedAt && !leaves { return false }
        if let limit = habits.breaksAfter, sent >= min(limit, bytes.count) {
            return random.happens(oneIn: 2) ? reset() : close()
        }
        if random.happens(oneIn: 2) { return read(random) || send(random) || end() }
        return send(random) || read(random) || end()
    }

    /// Goes on after a pause; false if there was none.
    func resume() -> Bool {
        let wasPaused = isPaused || (habits.reading == .pauses && !hasPaused && !hasReadAll)
        guard !isGone, wasPaused else { return false }
        (isPaused, hasPaused) = (false, true)
        note("goes on")
        return true
    }

    /// When it will do something by itself; nil if it rests from nothing.
    var actsAgainAt: UInt64? { restedAt > world.kernel.clock.now && !isGone && !leaves ? restedAt : nil }

    private func send(_ random: Randomness) -> Bool {
        // It does not know that the server has closed the connection before it has read all that came before that.
        let seesEnd = socket?.isClosed == true && hasReadAll
        guard sent < bytes.count, !hasEndedSending, !isPaused, !seesEnd else { return false }
        if let limit = habits.pausesAfter, sent >= limit, !hasPaused {
            isPaused = true
            return false
        }
        let request = requests[sentRequests]
        if !habits.pipelines && checker.answered < sentRequests { return false }
        var limit = request.end
        if request.waitsForContinue && !checker.hasContinued {
            limit -= request.bytes.count - request.headLength
        } else if habits.pipelines && random.happens(oneIn: 2) {
            limit = bytes.count
            if let waiting = requests[(sentRequests + 1)...].first(where: \.waitsForContinue) {
                limit = waiting.end - waiting.bytes.count
            }
        }
        guard sent < limit else { return false }
        let count = min(limit - sent, habits.piece == .max ? .max : 1 + random.below(habits.piece))
        let piece = bytes[sent..<sent + count]
        restedAt = world.kernel.clock.now + habits.pace
        note("sends", count)
        for (index, request) in requests.enumerated() where piece.indices.contains(request.end - request.bytes.count) {
            checker.requestBegins(index)
        }
        sent += count
        while sentRequests < requests.count, requests[sentRequests].end <= sent {
            checker.requestArrives(sentRequests)
            sentRequests += 1
        }
        if let socket { socket.arrive(piece) } else { early.bytes += piece }
        return true
    }

    private func read(_ random: Randomness) -> Bool {
        guard let socket, socket.unread > 0, !mayReadNothing || leaves else { return false }
        let slow = 1 + random.below(habits.pace > 0 ? 30 : 400)
        let count = habits.reading == .slow ? min(socket.unread, slow) : socket.unread
        note("reads", count)
        restedAt = world.kernel.clock.now + habits.pace
        socket.read(count)
        return true
    }

    /// Ends the connection when there is nothing else to do.
    private func end() -> Bool {
        if leaves { return close() }
        guard hasReadAll else { return false }
        if socket?.isClosed == true || (socket?.finishedAt != nil && habits.reading != .never) { return close() }
        let hasAll = sent == bytes.count && checker.answered == requests.count
        switch habits.ending {
        case .closes where hasAll: return close()
        case .endsSending where sent == bytes.count && !hasEndedSending:
            hasEndedSending = true
            note("ends its sending")
            if let socket { socket.end() } else { early.hasEnd = true }
            return true
        default: return false
        }
    }

    private func close() -> Bool {
        hasClosed = true
        note("closes")
        if let socket, socket.unread > 0 { return reset() }
        if let socket { socket.end() } else { early.hasEnd = true }
        return true
    }

    private func reset() -> Bool {
        hasReset = true
        note("resets")
        if let socket { socket.reset() } else { early.isReset = true }
        return true
    }
}

/// How a client behaves.
struct Habits {
    enum Ending {
        /// Waits for the server to close the connection.
        case stays
        /// Closes when it has all answers.
        case closes
        /// Ends its sending after its last request, and reads its answers.
        case endsSending
    }

    enum Reading {
        case eager
        /// A few bytes at a time.
        case slow
        /// Nothing, until all others are done.
        case pauses
        /// Never anything.
        case never
    }

    var requests = 1
    /// Whether it sends further requests before it has the answers to earlier ones.
    var pipelines = false
    /// The most that it sends at a time.
    var piece = Int.max
    var reading = Reading.eager
    var ending = Ending.closes
    /// Nanoseconds between two pieces that it sends or reads.
    var pace: UInt64 = 0
    /// After so many bytes it resets the connection, or closes it without reading; nil for a good client.
    var breaksAfter: Int?
    /// After so many bytes it sends no more for a long time.
    var pausesAfter: Int?
    /// Bytes of answers that its connection takes before it reads them.
    var window = 1 << 20

    init(_ random: Randomness, _ choices: Choices) {
        requests = 1 + random.below(4)
        pipelines = random.happens(oneIn: 2)
        piece = random.among([.max, .max, 1 + random.below(200), 1 + random.below(5_000)])
        window = random.among([1 << 20, 1 << 16, 2_304, 300])
        ending = random.among([.stays, .closes, .closes, .endsSending])
        guard choices.hasBadClients else { return }
        reading = random.among([.eager, .eager, .slow, .pauses, random.happens(oneIn: 3) ? .never : .pauses])
        if random.happens(oneIn: 6) { pace = .milliseconds(100 + random.below(3_000)) }
        if random.happens(oneIn: 4) { breaksAfter = random.below(600) }
        if random.happens(oneIn: 5) { pausesAfter = random.below(400) }
    }
}
