internal import EventLoop
internal import HTTP
internal import Metrics
internal import Server
internal import Settings

/// What the server tells of itself and lets be done to it, on `admin.listen` and the control socket.
///
/// Belongs to its loop's thread.
struct AdministrationEndpoints: Sendable {
    private let server: Server
    private let status: SharedReport<ServerStatus>
    private let metrics: SharedReport<String>
    /// What the server tells commands about itself, on the control socket.
    let facts: @Sendable () -> ServerFacts

    /// - Parameters:
    ///   - server: Asked for everything.
    ///   - listenerNames: Of the administration.
    ///   - warnings: About those listeners.
    ///   - version: This program's.
    ///   - loop: The loop of the calling task.
    init(_ server: Server, listenerNames: [String], warnings: [String], _ version: String, on loop: EventLoop) {
        self.server = server
        status = SharedReport(on: loop) { ServerStatus(of: server, version: version, listenerWarnings: warnings) }
        metrics = SharedReport(on: loop) { MetricsReport.text(of: server, version: version) }
        facts = { ServerFacts(server, administration: listenerNames, version: version) }
    }

    private enum Endpoint: String, CaseIterable {
        case page = "/"
        case status = "/status"
        case health = "/healthz"
        case readiness = "/readyz"
        case metrics = "/metrics"
        case reload = "/reload"
        case drain = "/drain"

        /// Those that do something are not to be done by a link.
        var isAction: Bool { self == .reload || self == .drain }
    }

    /// Answers a request; nil when there is nothing at its path.
    func answer(_ request: AdministrationStream.Received, of asker: Asker) async -> AdministrationAnswer? {
        if asker == .network, !AdministrationHosts(names: server.settingsInForce.admin.hosts).contain(request.host) {
            return .error(
                .misdirected,
                "the host is neither an IP address nor localhost; if it is a name of this server, add it to admin.hosts"
            )
        }
        guard let endpoint = Endpoint(rawValue: request.path) else { return nil }
        let methods = endpoint.isAction ? ["POST"] : ["GET", "HEAD"]
        guard methods.contains(request.method) else {
            let allowed = methods.joined(separator: ", ")
            var answer = AdministrationAnswer.error(.methodNotAllowed, "the method of this path is \(allowed)")
            answer.fields = ["Allow: \(allowed)"]
            return answer
        }
        if endpoint.isAction {
            if asker == .network { return .error(.forbidden, referral(to: endpoint)) }
            if request.isFromPage {
                return .error(
                    .forbidden, "a page of another site must not do this: it is for programs that send no Origin")
            }
        }
        return await answer(endpoint, asker)
    }

    func nothing(at path: String) -> AdministrationAnswer {
        .error(
            .notFound,
            "there is nothing at this path; there are \(Endpoint.allCases.map(\.rawValue).joined(separator: ", "))"
        )
    }

    /// Where to ask for what is not done over TCP.
    private func referral(to endpoint: Endpoint) -> String {
        let path = endpoint.rawValue
        let socket = ControlSocketAddress.path(server.settingsInForce)
        return """
            over TCP anybody on this machine could ask for this; use token-cache \(path.dropFirst()), or curl -X POST \
            --unix-socket \(socket) http://localhost\(path), as a user whom that socket's file lets in
            """
    }

    private func answer(_ endpoint: Endpoint, _ asker: Asker) async -> AdministrationAnswer {
        switch endpoint {
        case .page: return StatusPage.answer
        case .status: return AdministrationAnswer(json: await status.next())
        // A full disk does not get better by a restart: what can answer is alive.
        case .health: return AdministrationAnswer(json: ["alive": true])
        case .readiness:
            let readiness = server.readiness
            return AdministrationAnswer(readiness.isReady ? .ok : .unavailable, json: readiness)
        case .metrics: return AdministrationAnswer(mediaType: MetricsText.mediaType, text: await metrics.next())
        case .reload:
            let outcome = await server.reload("reload asked for by \(asker)")
            return AdministrationAnswer(outcome.isReloaded ? .ok : .internalError, json: outcome)
        case .drain:
            server.drain("drain asked for by \(asker)")
            return AdministrationAnswer(json: Draining(draining: true))
        }
    }
}
