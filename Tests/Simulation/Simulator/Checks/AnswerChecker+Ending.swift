/// The end of a connection, and the moments in which nothing happens.
extension AnswerChecker {
    /// Checks that the server has a reason to close the connection, and owes nothing.
    func serverCloses(_ socket: SimulatedSocket) {
        if isExcused { return }
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
            let mayEnd = socket.hasEnd || world.hasEndedIdleWaits || world.lastExcessAt >= lastAnswerAt
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
        guard isMalformed || socket.hasEnd || world.hasEndedIdleWaits || waited >= world.choices.headTime else {
            fail("the connection is closed after \(waited / 1_000_000) ms without a PROXY header")
        }
    }

    /// The client goes on sending after the server has closed the connection.
    func inputMeetsClosedSocket(_ socket: SimulatedSocket) {
        if isDone && !isExcused { checkLingering(of: socket) }
    }

    /// Checks that the client had a moment to read the last answer before a reset could overtake it (RFC 9112, section 9.6).
    private func checkLingering(of socket: SimulatedSocket) {
        guard socket.unread > 0, !hasAskedToClose, let closedAt = socket.closedAt else { return }
        let lingered = closedAt + Self.slack - (socket.finishedAt ?? closedAt)
        guard lingered >= .seconds(2) else { fail("the last answer is lost to a reset, as input was left unread") }
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
