internal import EventLoop
internal import HTTP

/// Serves a connection to `admin.listen`, from its first request to its last.
///
/// Belongs to its loop's thread.
enum AdministrationConnection {
    private static let limits = RequestLimits(requestLine: 1 << 10, head: 8 << 10, body: 8 << 10)

    /// - Parameters:
    ///   - connection: The connection; this call closes its socket.
    ///   - loop: The calling task's loop.
    ///   - endpoints: Answer the requests.
    static func serve(
        _ connection: AdministrationConnections.Connection, on loop: EventLoop, _ endpoints: AdministrationEndpoints
    ) async {
        guard var stream = AdministrationStream(connection, on: loop, limits: limits) else { return }
        while true {
            switch await stream.receive() {
            case .request(let request):
                // It is a read, which may be cut off to make room.
                let found = await connection.waiting(for: .answer) { await endpoints.answer(request, from: nil) }
                let bytes = (found ?? endpoints.notFound)
                    .encoded(omitsBody: request.method == "HEAD", closes: request.isLast)
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
}
