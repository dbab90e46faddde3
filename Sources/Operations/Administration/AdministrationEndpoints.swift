internal import EventLoop
internal import HTTP
internal import Metrics
internal import Server
internal import Settings

/// Answers requests for the server's state and for what changes it, on `admin.listen` and the control socket.
///
/// Belongs to its loop's thread.
struct AdministrationEndpoints: Sendable {
    private let server: Server
    private let guardian: AdministrationGuard
    private let tokens: SingleTokens
    private let status: SharedReport<ServerStatus>
    private let metrics: SharedReport<String>
    private let history: HistoryAnswer
    /// The server's addresses and limits, for commands on the control socket.
    let facts: @Sendable () -> ServerFacts

    /// - Parameters:
    ///   - server: The server to report on.
    ///   - administrators: Look up and delete single tokens.
    ///   - acts: Logs what they do.
    ///   - listenerNames: The addresses of `admin.listen`.
    ///   - warnings: The present warnings about those listeners.
    ///   - version: This program's version.
    ///   - history: The course of the server's figures.
    ///   - loop: The calling task's loop.
    init(
        _ server: Server, _ administrators: Administrators, _ acts: ActLog, listenerNames: [String],
        warnings: @escaping @Sendable () -> [String], _ version: String,
        _ history: History,
        on loop: EventLoop
    ) {
        self.server = server
        guardian = AdministrationGuard(server)
        tokens = SingleTokens(administrators, acts)
        status = SharedReport(on: loop) {
            ServerStatus(of: server, history, version: version, listenerWarnings: warnings())
        }
        metrics = SharedReport(on: loop) { MetricsReport.text(of: server, version: version) }
        self.history = HistoryAnswer(history)
        facts = { ServerFacts(server, administration: listenerNames, version: version) }
    }

    /// Answers a request; nil when no endpoint has its path.
    func answer(_ request: AdministrationStream.Received, from requester: Requester) async -> AdministrationAnswer? {
        if case .network = requester,
            !AdministrationHosts(names: server.settingsInForce.admin.hosts).contain(request.host)
        {
            return .error(
                .misdirected,
                "the host is neither an IP address nor localhost; if it is a name of this server, add it to admin.hosts"
            )
        }
        guard let endpoint = AdministrationEndpoint(rawValue: request.path) else { return nil }
        switch guardian.decide(request, to: endpoint, from: requester) {
        case .admitted(let admission): return await answer(request, to: endpoint, admission)
        case .refused(let answer): return answer
        }
    }

    /// Logs a change of a file of keys, and takes it over.
    func note(_ change: KeyChange, by requester: Requester) async -> KeyChangeReply {
        let file: AccessResources.KeyFile = change.isOfAdminKeys ? .adminKeys : .apiKeys
        return KeyChangeReply(fault: await server.noteKeyChange(change.text(by: "\(requester)"), in: file))
    }

    /// The answer for a path without an endpoint.
    var notFound: AdministrationAnswer {
        .error(
            .notFound,
            "there is nothing at this path; there are \(AdministrationEndpoint.allCases.map(\.rawValue).joined(separator: ", "))"
        )
    }

    private func answer(
        _ request: AdministrationStream.Received, to endpoint: AdministrationEndpoint,
        _ admission: AdministrationGuard.Admission
    ) async -> AdministrationAnswer {
        let requester = admission.requester
        switch endpoint {
        case .page: return StatusPage.answer
        case .status: return AdministrationAnswer(json: await status.next())
        case .history: return history.answer(request.query)
        case .log: return AdministrationAnswer(json: ServerLog(of: server))
        case .settings: return AdministrationAnswer(json: ServerSettings(of: server))
        // Alive as long as it answers: a restart would not help against a full disk.
        case .health: return AdministrationAnswer(json: ["alive": true])
        case .readiness:
            let readiness = server.readiness
            return AdministrationAnswer(
                readiness.isReady ? .ok : .unavailable,
                json: admission.mayRead ? readiness : readiness.withoutReasons)
        case .metrics: return AdministrationAnswer(mediaType: MetricsText.mediaType, text: await metrics.next())
        case .key: return AdministrationAnswer(json: admission.reply)
        case .reload:
            let outcome = await server.reload(
                "reload requested by \(requester)", by: requester.actor, at: requester.addressText)
            return AdministrationAnswer(outcome.isReloaded ? .ok : .internalError, json: outcome)
        case .drain:
            server.drain("drain requested by \(requester)", by: requester.actor, at: requester.addressText)
            return AdministrationAnswer(json: DrainReply(draining: true))
        case .token:
            return await tokens.answer(request, from: requester, FindToken.init(id:), TokenFactsReply.init(_:))
        case .tokenDeletion:
            return await tokens.answer(request, from: requester, RemoveTokens.init(id:), TokenDeletionReply.init(_:))
        }
    }
}
