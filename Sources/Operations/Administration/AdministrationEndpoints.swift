internal import EventLoop
internal import HTTP
internal import Metrics
internal import Server
internal import Settings

/// Answers requests for the server's state, and the reload and drain actions, on `admin.listen` and the control socket.
///
/// Belongs to its loop's thread.
struct AdministrationEndpoints: Sendable {
    private let server: Server
    private let status: SharedReport<ServerStatus>
    private let metrics: SharedReport<String>
    private let history: HistoryAnswer
    /// The server's addresses and limits, for commands on the control socket.
    let facts: @Sendable () -> ServerFacts

    /// - Parameters:
    ///   - server: The server to report on.
    ///   - listenerNames: The addresses of `admin.listen`.
    ///   - warnings: Warnings about those listeners.
    ///   - version: This program's version.
    ///   - history: The course of the server's figures.
    ///   - loop: The calling task's loop.
    init(
        _ server: Server, listenerNames: [String], warnings: [String], _ version: String, _ history: History,
        on loop: EventLoop
    ) {
        self.server = server
        status = SharedReport(on: loop) { ServerStatus(of: server, version: version, listenerWarnings: warnings) }
        metrics = SharedReport(on: loop) { MetricsReport.text(of: server, version: version) }
        self.history = HistoryAnswer(history)
        facts = { ServerFacts(server, administration: listenerNames, version: version) }
    }

    private enum Endpoint: String, CaseIterable {
        case page = "/"
        case status = "/status"
        case history = "/history"
        case health = "/healthz"
        case readiness = "/readyz"
        case metrics = "/metrics"
        case reload = "/reload"
        case drain = "/drain"

        /// Whether it changes the server's state, so that GET must not trigger it.
        var isAction: Bool { self == .reload || self == .drain }
    }

    /// Answers a request; nil when no endpoint has its path.
    func answer(_ request: AdministrationStream.Received, from requester: Requester) async -> AdministrationAnswer? {
        if requester == .network, !AdministrationHosts(names: server.settingsInForce.admin.hosts).contain(request.host)
        {
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
            if requester == .network { return .error(.forbidden, refusalOverTCP(of: endpoint)) }
            if request.isFromPage {
                return .error(
                    .forbidden, "a page of another site must not do this: it is for programs that send no Origin")
            }
        }
        return await answer(endpoint, request, requester)
    }

    /// The answer for a path without an endpoint.
    var notFound: AdministrationAnswer {
        .error(
            .notFound,
            "there is nothing at this path; there are \(Endpoint.allCases.map(\.rawValue).joined(separator: ", "))"
        )
    }

    /// Says how to request an action that is not allowed over TCP.
    private func refusalOverTCP(of endpoint: Endpoint) -> String {
        let path = endpoint.rawValue
        let socket = ControlSocketAddress.path(server.settingsInForce)
        return """
            this is not allowed over TCP, where every user of this machine could request it; use token-cache \
            \(path.dropFirst()), or curl -X POST --unix-socket \(socket) http://localhost\(path), as a user with access to \
            that socket
            """
    }

    private func answer(
        _ endpoint: Endpoint, _ request: AdministrationStream.Received, _ requester: Requester
    ) async -> AdministrationAnswer {
        switch endpoint {
        case .page: return StatusPage.answer
        case .status: return AdministrationAnswer(json: await status.next())
        case .history: return history.answer(request.query)
        // Alive as long as it answers: a restart would not help against a full disk.
        case .health: return AdministrationAnswer(json: ["alive": true])
        case .readiness:
            let readiness = server.readiness
            return AdministrationAnswer(readiness.isReady ? .ok : .unavailable, json: readiness)
        case .metrics: return AdministrationAnswer(mediaType: MetricsText.mediaType, text: await metrics.next())
        case .reload:
            let outcome = await server.reload("reload requested by \(requester)")
            return AdministrationAnswer(outcome.isReloaded ? .ok : .internalError, json: outcome)
        case .drain:
            server.drain("drain requested by \(requester)")
            return AdministrationAnswer(json: DrainReply(draining: true))
        }
    }
}
