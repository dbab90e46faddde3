internal import EventLoop
internal import HTTP

/// One connection of the administration's listeners, from its first request to its last.
///
/// Belongs to its loop's thread.
enum AdministrationConnection {
    /// Nothing here takes a body.
    private static let limits = RequestLimits(requestLine: 1 << 10, head: 8 << 10, body: 1 << 10)

    /// - Parameters:
    ///   - connection: Whose socket this call closes.
    ///   - loop: The loop of the calling task.
    ///   - endpoints: Answer.
    static func serve(
        _ connection: AdministrationConnections.Connection, on loop: EventLoop, _ endpoints: AdministrationEndpoints
    ) async {
        guard var stream = AdministrationStream(connection, on: loop, limits: limits) else { return }
        while true {
            switch await stream.receive() {
            case .request(let request):
                // Nothing that is asked for here does anything, so that it may be given up.
                let answer =
                    await connection.waiting(for: .answer) { await endpoints.answer(request, of: .network) }
                    ?? endpoints.nothing(at: request.path)
                let bytes = answer.encoded(omitsBody: request.method == "HEAD", closes: request.isLast)
                guard await stream.send(bytes) else { return }
                if request.isLast { return stream.finishSending() }
            case .refused(let refusal):
                let answer = AdministrationAnswer.error(refusal.status, refusal.message)
                _ = await stream.send(answer.encoded(closes: true))
                return stream.finishSending()
            case .over: return
            }
        }
    }
}
