internal import EventLoop
internal import HTTP
internal import System

/// Serves a connection to `admin.listen`, from its first request to its last.
///
/// Belongs to its loop's thread.
enum AdministrationConnection {
    private static let limits = RequestLimits(
        requestLine: 1 << 10, head: 8 << 10, body: AdministrationStream.Received.bodyLimit)

    /// - Parameters:
    ///   - connection: The connection; this call closes its socket.
    ///   - loop: The calling task's loop.
    ///   - peer: The client's address.
    ///   - endpoints: Answer the requests.
    static func serve(
        _ connection: AdministrationConnections.Connection, from peer: SocketAddress, on loop: EventLoop,
        _ endpoints: AdministrationEndpoints
    ) async {
        let requester = Requester.network(IPAddress(networkOrder: peer.addressBytes[...]))
        guard var stream = AdministrationStream(connection, on: loop, limits: limits) else { return }
        while true {
            switch await stream.receive() {
            case .request(let request):
                let answer = await answer(request, from: requester, on: connection, endpoints) ?? endpoints.notFound
                let bytes = answer.encoded(omitsBody: request.method == "HEAD", closes: request.isLast)
                guard await stream.send(bytes) else { return }
                if request.isLast { return stream.finishSending() }
            case .refused(let refusal):
                let answer = AdministrationAnswer.error(refusal.status, refusal.message)
                _ = await stream.send(answer.encoded(closes: true))
                return stream.finishSending()
            case .closed: return
            }
        }
    }

    private static func answer(
        _ request: AdministrationStream.Received, from requester: Requester,
        on connection: AdministrationConnections.Connection, _ endpoints: AdministrationEndpoints
    ) async -> AdministrationAnswer? {
        // A client that changes something always gets its answer; a read may be cut off to make room.
        if request.method == "POST" { return await endpoints.answer(request, from: requester) }
        return await connection.waiting(for: .answer) { await endpoints.answer(request, from: requester) }
    }
}
