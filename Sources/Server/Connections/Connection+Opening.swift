internal import EventLoop
internal import HTTP
internal import Metrics
internal import System
internal import TokenService

/// Opening a connection: PROXY protocol header and TLS handshake.
extension Connection {
    /// Reads the PROXY protocol header that the connection must begin with, and takes the client's address from it.
    ///
    /// Reads no byte beyond the header, as a TLS handshake may follow.
    ///
    /// - Returns: False if there is no valid header, or if the peer is not a trusted proxy.
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
                // Without an address the connection stays the proxy's, which then has not written what comes through it.
                origin = settings.https.origin(
                    address: client ?? origin.address, isTLS: false, hidesClient: client == nil)
                return true
            case .needsMore:
                // Peeking leaves the bytes on the socket, so the end of input behind them shows only as `hasEnded`.
                guard !stream.hasEnded, await stream.waitForMore(until: deadline) == .ready else { return false }
            case .malformed:
                worker.noteClosed("it did not begin with a PROXY protocol header")
                return false
            }
        }
        worker.noteClosed("its peer must send a PROXY protocol header, but is not a trusted proxy")
        return false
    }

    /// Performs the TLS handshake.
    ///
    /// - Returns: False if it failed; a client that can still be answered has then received a refusal or an alert.
    mutating func startTLS(
        _ context: TLSContext, clients: TLSClientAuthentication, on worker: Worker
    ) async -> Bool {
        do throws(TLSError) {
            let deadline = worker.loop.now + settings.deadlines.handshake
            try await stream.startTLS(context, clients: clients, until: deadline, among: worker.handshakes)
            worker.metrics.handshakes.add()
            origin = settings.https.origin(
                address: origin.address, isTLS: true, hidesClient: origin.hidesClient)
            certificate = stream.clientCertificate.map { ClientCertificate($0, named: settings.certificateName) }
            return true
        } catch {
            worker.noteClosed("\(error)")
            worker.metrics.handshakeFailures.add(error.cause)
            switch error {
            case .plainRequest: await refuse(.plainRequest, on: worker)
            case .refused:
                // Sends the alert that tells the client why.
                lingers = true
                await finish(on: worker)
            case .closed, .timedOut, .displaced, .stopped, .system: break
            }
            return false
        }
    }

    /// Whether the client speaks TLS on a plain HTTP port: it would not understand any answer.
    func isTLSHello(on worker: Worker) -> Bool {
        guard !hasAnswered, reader.beginsLikeTLS else { return false }
        worker.noteClosed("TLS on a plain HTTP port")
        return true
    }
}
