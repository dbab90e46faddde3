/// Compares what the server sends on one connection with what its client must get.
///
/// It looks at answers when the server sends them, so that neither the order nor the moment is blurred by the network.
final class AnswerChecker {
    unowned let world: World
    unowned let client: SimulatedClient
    private(set) var reader = AnswerReader()
    /// Requests with a final answer.
    private(set) var answered = 0
    /// An answer has said that the connection closes.
    private(set) var isDone = false
    /// Whether the current request has got its `100 Continue`.
    private(set) var hasContinued = false
    /// When it came, more connections were open than the settings allow, so that it gets 503 unless an idle one makes room.
    var exceedsLimit = false
    /// Whether another connection needed its place when it was closed.
    private var madeRoom = false
    /// The kernel has failed in a call for this connection, which is then dropped.
    var isForsaken = false

    /// The moments at which each request's last byte has arrived.
    private var arrivals: [Int] = []
    /// The times at which each request's first byte has arrived.
    private var beginnings: [UInt64] = []
    /// The moment of the last read or write that is known to have happened.
    private var lastMoment = 0
    /// When the server has read the first bytes of the current request, which is not complete.
    private var readSince: UInt64?
    /// When the last answer was sent, or the connection accepted.
    private(set) var lastAnswerAt: UInt64 = 0
    /// When the connection was accepted.
    private(set) var acceptedAt: UInt64 = 0
    /// Since when the server waits for the client to read.
    private(set) var blockedSince: UInt64?
    /// The latest moment at which the server can have begun to measure the time for that.
    private var timedSince: UInt64 = 0
    /// Whether a request has waited for the store since then.
    private var hasAskedStore = false
    /// Whether all that was written has been sent at some time since the last attempt that found no room: the time to send
    /// then begins anew with the next such attempt.
    private var hasSentAll = false
    /// The last attempt to send that found no room.
    private var blockedAt: UInt64 = 0
    /// Attempts to read and to send after the time for them was over: one, as the last event may come with the deadline.
    private var (lateReads, lateSends) = (0, 0)
    /// How many bytes the server has read.
    private(set) var bytesRead = 0

    /// The server's deadlines begin with a turn, a moment before what they are for.
    static let slack = UInt64.seconds(1)

    init(_ client: SimulatedClient, _ world: World) {
        self.client = client
        self.world = world
    }

    private var ledger: Ledger { world.ledger }
    var now: UInt64 { world.kernel.clock.now }

    func isAccepted() { (acceptedAt, lastAnswerAt) = (now, now) }
    func requestBegins(_ index: Int) { beginnings.append(now) }
    func requestArrives(_ index: Int) { arrivals.append(ledger.moment) }

    /// The server cannot send, as the client does not read.
    func isBlocked() {
        // While the server waits for the store, the time to send does not run. It begins anew with the store's answer.
        let beginsAnew = hasSentAll || (asksStore && now > blockedAt + world.choices.bodyTime)
        if blockedSince == nil || beginsAnew { (timedSince, hasAskedStore) = (now, false) }
        // Until the time was over, the store may have answered once, after which all of it is there again.
        hasAskedStore = hasAskedStore || asksStore
        let limit = (hasAskedStore ? 2 : 1) * world.choices.bodyTime + Self.slack
        hasSentAll = false
        blockedSince = blockedSince ?? now
        blockedAt = now
        // Less than the 256 KiB after which a client that reads gets more time.
        lateSends = now > timedSince + limit ? lateSends + 1 : 0
        if lateSends > 2 { fail("the client is still waited for after \((now - timedSince) / 1_000_000) ms") }
    }

    /// Whether a request that the server may have read waits for the store, or has waited since the last attempt to send.
    private var asksStore: Bool {
        client.requests[min(answered, client.sentRequests)..<client.sentRequests].contains { request in
            switch request.purpose {
            case .get, .post: true
            case .head, .error, .httpError, .malformed: false
            }
        }
    }

    func serverHasRead(_ total: Int) {
        bytesRead = total
        blockedSince = nil
        // Whether a request that does not come to its end is waited for too long.
        guard !isDone, answered >= arrivals.count, total > startOfRequest else {
            lateReads = 0
            return
        }
        let began = readSince ?? now
        readSince = began
        let limit = world.choices.headTime + world.choices.bodyTime + Self.slack
        lateReads = now > began + limit ? lateReads + 1 : 0
        if lateReads > 2 { fail("it is still waited for after \((now - began) / 1_000_000) ms") }
    }

    // MARK: - Answers

    func serverSends(_ bytes: UnsafeRawBufferPointer) {
        if isDone && !reader.hasPart { fail("bytes follow the last answer") }
        if waitsForHeader { fail("it is answered before its PROXY header was read") }
        reader.append(bytes)
        while let answer = reader.next() {
            if isDone { fail("an answer follows the last one") }
            check(answer)
        }
        if !reader.hasPart { hasSentAll = true }
    }

    var request: ClientRequest? { answered < client.requests.count ? client.requests[answered] : nil }

    private func check(_ answer: AnswerReader.Answer) {
        client.note("gets an answer", answer.status * 100_000 + answer.errorCode)
        if answer.status == 100 { return checkContinue() }
        if answer.status == 503 || answer.status == 408 { return checkRefusal(answer) }
        guard let request else { fail("there are more answers than requests") }
        if case .malformed(let status) = request.purpose {
            guard answer.status == status else { fail("the answer is \(answer.status) and not \(status)") }
            guard answer.closes else { fail("the connection goes on after a request that cannot be read") }
            isDone = true
            return finishRequest()
        }
        guard answered < arrivals.count else { fail("it gets \(answer.status) before its last byte has arrived") }
        if request.closes && !answer.closes { fail("the client asked to close, and the answer does not say so") }
        if answer.closes && !request.closes && !world.isDraining { fail("the connection closes for no reason") }
        isDone = answer.closes
        checkContent(answer, of: request)
        finishRequest()
    }

    private func finishRequest() {
        answered += 1
        hasContinued = false
        lastAnswerAt = now
        readSince = nil
    }

    private func checkContinue() {
        guard let request, request.expectsContinue, !hasContinued else { fail("100 Continue was not asked for") }
        hasContinued = true
    }

    /// Whether the request is complete, and may have waited as long work for longer than it may.
    private var isLate: Bool {
        answered < arrivals.count
            && now + Self.slack >= beginnings[answered] + world.choices.bodyTime
    }

    private func checkRefusal(_ answer: AnswerReader.Answer) {
        guard answer.closes else { fail("the connection goes on after \(answer.status)") }
        isDone = true
        if answer.status == 408 {
            guard answered < beginnings.count else { fail("it takes too long although it has not begun") }
            let began = max(beginnings[answered], lastAnswerAt)
            let limit = world.choices.headTime
            guard now + Self.slack >= began + limit else { fail("408 after \((now - began) / 1_000_000) ms") }
        } else if !world.choices.hasFewBuffers, !isLate {
            // With few buffers, one that an idle connection has made room for may be refused later.
            guard exceedsLimit else { fail("it is refused although there is room") }
            if answered > 0 { fail("a connection beyond the limit was served") }
        }
        finishRequest()
    }

    private func checkContent(_ answer: AnswerReader.Answer, of request: ClientRequest) {
        if case .httpError(let status) = request.purpose {
            guard answer.status == status else { fail("the answer is \(answer.status) and not \(status)") }
            return
        }
        guard answer.status == 200 else { fail("the answer is \(answer.status)") }
        let start = max(lastMoment, arrivals[answered])
        switch (request.purpose, answer.errorCode) {
        case (.get(let id), 0):
            guard let write = ledger.write(inBody: answer.body) else { fail("the answer is no token that was written") }
            guard let moment = ledger.firstMoment(finding: write, of: id, from: start) else {
                fail("GET of id \(id) gets write \(write), which was not stored at any moment since the request")
            }
            lastMoment = moment
        case (.get(let id), 50002):
            guard let moment = ledger.firstMomentFindingNothing(of: id, from: start) else {
                return world.explainFailure { fail("GET of id \(id) finds nothing, but there was a token") }
            }
            // If the server has reported a failed read, this answer may be due to that, at an earlier moment.
            if !world.hasUnexplainedReport { lastMoment = moment }
        case (.post(let write), 0):
            guard let moment = ledger.committedAt(write), moment >= arrivals[answered] else {
                fail("POST is acknowledged, but write \(write) is not committed")
            }
            lastMoment = max(lastMoment, moment)
        case (.post(let write), 50001):
            world.explainFailure { fail("POST of write \(write) fails, but the store has reported nothing") }
        case (.head, 0): if answer.length != nil { fail("the answer to HEAD has a length") }
        case (.error(let code), answer.errorCode) where code == answer.errorCode: break
        default: fail("the answer has code \(answer.errorCode)")
        }
    }

    /// Where the current request begins among the bytes that the client sends.
    var startOfRequest: Int { answered == 0 ? headerLength : client.requests[answered - 1].end }

    /// Bytes that come before the first request.
    private var headerLength: Int { client.proxyHeader?.bytes.count ?? 0 }

    /// Whether the server has not yet read the PROXY header that it requires.
    var waitsForHeader: Bool {
        guard let header = client.proxyHeader else { return false }
        return header.isMalformed || bytesRead < header.bytes.count
    }

    func fail(_ text: String) -> Never {
        violation("\(client), request \(answered + 1): \(text)")
    }
}

/// The end of a connection, and the moments in which nothing happens.
extension AnswerChecker {
    /// Checks that the server has a reason to close the connection, and owes nothing.
    func serverCloses(_ socket: SimulatedSocket) {
        madeRoom = world.hasExcess(since: socket.finishedAt ?? now)
        if isExcused { return }
        // A request that has not arrived in full makes room for a new client, and so does an answer that nobody reads.
        let isDisplaced = world.hasExcess(since: lastAnswerAt)
        if isDisplaced, reader.hasPart || blockedSince != nil { return }
        if reader.hasPart { fail("the answer is cut off") }
        if waitsForHeader { return checkEndInHeader(socket) }
        if !isDone {
            if answered < client.requests.count, client.requests[answered].end <= bytesRead {
                fail("the connection is closed without an answer although the request was read")
            }
            if socket.oldestInput < world.kernel.turn {
                fail("the connection is closed although input had arrived")
            }
            let waited = now + Self.slack - lastAnswerAt
            let mayEnd = socket.hasEnd || world.hasEndedIdleWaits || world.hasExcess(since: lastAnswerAt)
            guard mayEnd || waited >= world.choices.idleTime else {
                fail("an idle connection is closed after \(waited / 1_000_000) ms")
            }
        } else if socket.hasUnreadInput {
            checkLingering(of: socket)
        }
    }

    /// Checks that the server has a reason to wait for the PROXY header no longer.
    private func checkEndInHeader(_ socket: SimulatedSocket) {
        if bytesRead > 0 { fail("a part of the PROXY header was read") }
        let waited = now + Self.slack - acceptedAt
        let isMalformed = client.proxyHeader?.isMalformed == true
        let mayEnd = isMalformed || socket.hasEnd || world.hasEndedIdleWaits || world.hasExcess(since: acceptedAt)
        guard mayEnd || waited >= world.choices.headTime else {
            fail("the connection is closed after \(waited / 1_000_000) ms without a PROXY header")
        }
    }

    /// The client goes on sending after the server has closed the connection.
    func inputMeetsClosedSocket(_ socket: SimulatedSocket) {
        if isDone && !isExcused { checkLingering(of: socket) }
    }

    /// Checks that the client had a moment to read the last answer before a reset could overtake it (RFC 9112, section 9.6), unless
    /// another connection needed its place.
    private func checkLingering(of socket: SimulatedSocket) {
        guard socket.unread > 0, !hasAskedToClose, let closedAt = socket.closedAt else { return }
        let lingered = closedAt + Self.slack - (socket.finishedAt ?? closedAt)
        if lingered >= .seconds(2) || madeRoom { return }
        fail("the last answer is lost to a reset, as input was left unread")
    }

    /// Whether the last request that was answered has asked for the end of the connection, so that nothing may follow it.
    private var hasAskedToClose: Bool {
        answered > 0 && answered <= client.requests.count && client.requests[answered - 1].closes
    }

    /// Whether the server may drop the connection without a word.
    private var isExcused: Bool {
        if client.isGone || isForsaken || world.isAbandoned || world.choices.hasFewBuffers { return true }
        guard let blockedSince else { return false }
        return now + Self.slack >= blockedSince + world.choices.bodyTime
    }

    /// Nothing else can happen now except that time passes: whatever was asked for must have been answered.
    func checkAtRest() {
        if waitsForHeader, let socket = client.socket, !socket.isClosed, socket.hasEnd || socket.isReset {
            fail("the PROXY header is still waited for although nothing can follow")
        }
        guard let socket = client.socket, !socket.isClosed, !client.isGone, client.hasReadAll, !isDone else { return }
        if waitsForHeader, now > acceptedAt + world.choices.headTime + Self.slack {
            fail("the PROXY header is still waited for after \((now - acceptedAt) / 1_000_000) ms")
        }
        if answered < client.sentRequests { fail("there is no answer, although nothing more can happen") }
        guard let request, request.waitsForContinue, !hasContinued, !client.hasEndedSending else { return }
        if client.sent == request.end - request.bytes.count + request.headLength { fail("there is no 100 Continue") }
    }

    /// Whether the server has nothing to remember of the connection.
    var isIdle: Bool {
        guard let socket = client.socket, !socket.isClosed, !client.isGone else { return true }
        return client.hasReadAll && (isDone || waitsForHeader || client.sent == startOfRequest)
    }
}
