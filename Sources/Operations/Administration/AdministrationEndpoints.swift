internal import EventLoop
internal import HTTP
internal import Metrics
internal import Settings

/// What the server tells of itself and lets be done to it, on `admin.listen` and the control socket.
///
/// Belongs to its loop's thread.
struct AdministrationEndpoints: Sendable {
    let server: Server
    let version: String
    private let status: SharedReport<ServerStatus>
    private let metrics: SharedReport<String>

    init(server: Server, version: String, on loop: EventLoop) {
        self.server = server
        self.version = version
        status = SharedReport(on: loop) { server.status(version: version) }
        metrics = SharedReport(on: loop) { server.metrics(version: version) }
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
            if asker == .network { return .error(.forbidden, server.referral(to: endpoint.rawValue)) }
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
