internal import EventLoop
internal import HTTP
internal import Metrics
internal import System
internal import TokenService

/// What comes before the first request.
extension Connection {
    /// Reads the PROXY protocol header that the connection has to begin with, and takes its client for our own.
    ///
    /// Not a byte more: what follows may be TLS. False when there is none, or it comes from somebody who is not trusted to
    /// say who the client is.
    mutating func readProxyHeader(on worker: Worker) async -> Bool {
        let deadline = worker.loop.now + settings.deadlines.head
        while origin.isTrusted {
            var seen: [UInt8] = []
            switch try? stream.peek(into: &seen, room: ProxyProtocol.longest) {
            case .received, .wouldBlock: break
            case .endOfInput, nil: return false
            }
            switch ProxyProtocol.read(seen) {
            case .header(let length, let client):
                seen.removeAll()
                guard case .received(length) = try? stream.receive(into: &seen, room: length) else { return false }
                if let client { origin = settings.https.origin(address: client, isTLS: false) }
                return true
            case .needsMore:
                // What was looked at stays on the socket, so that reading it does not tell of the end behind it.
                guard !stream.hasEnded, await stream.waitForMore(until: deadline) == .ready else { return false }
            case .malformed:
                worker.noteClosed("it did not begin with a PROXY protocol header")
                return false
            }
        }
        worker.noteClosed("its PROXY protocol header is not of a trusted proxy")
        return false
    }

    /// Shakes hands; false when that fails, whatever there was to say having been said.
    mutating func startTLS(_ context: TLSContext, on worker: Worker) async -> Bool {
        do throws(TLSError) {
            try await stream.startTLS(context, until: worker.loop.now + settings.deadlines.handshake)
            worker.metrics.handshakes.add()
            origin = settings.https.origin(address: origin.address, isTLS: true)
            return true
        } catch {
            worker.noteClosed("\(error)")
            worker.metrics.handshakeFailures.add(error.cause)
            switch error {
            case .plainRequest: await refuse(.plainRequest, on: worker)
            case .refused:
                // The alert that tells the client why.
                lingers = true
                await finish(on: worker)
            case .closed, .timedOut, .stopped, .system: break
            }
            return false
        }
    }

    /// Whether the client speaks TLS where plain HTTP is expected: no answer of ours would mean anything to it.
    func isTLSHello(on worker: Worker) -> Bool {
        guard !hasAnswered, reader.beginsLikeTLS else { return false }
        worker.noteClosed("TLS on a plain HTTP port")
        return true
    }
}
