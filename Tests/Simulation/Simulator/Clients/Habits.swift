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
