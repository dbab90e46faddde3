import EventLoop
import HTTP
import Logging
import Metrics
import Server
import Settings
import System
import TokenService
import TokenStore

/// Answers requests for the server's state on `admin.listen` and the control socket; on the latter, one also reloads, and has commands
/// carried out.
///
/// Belongs to its loop's thread.
struct AdministrationEndpoints: Sendable {
    /// The paths of the administration.
    private enum Endpoint: String, CaseIterable {
        case page = "/"
        case status = "/status"
        case history = "/history"
        case settings = "/settings"
        case health = "/healthz"
        case readiness = "/readyz"
        case metrics = "/metrics"
        case reload = "/reload"

        var methods: [String] { self == .reload ? ["POST"] : ["GET", "HEAD"] }
    }

    private let server: Server
    private let status: SharedReport
    private let settings: SharedReport
    private let metrics: SharedReport
    private let history: History
    private let logger: Logger

    /// - Parameters:
    ///   - server: The server to report on.
    ///   - warnings: The present warnings about the administration's listeners.
    ///   - version: This program's version.
    ///   - history: The course of the server's figures.
    ///   - logger: Receives what commands did.
    ///   - loop: The calling task's loop.
    init(
        _ server: Server, warnings: @escaping @Sendable () -> [String], _ version: String, _ history: History,
        _ logger: Logger, on loop: EventLoop
    ) {
        (self.server, self.history, self.logger) = (server, history, logger)
        status = SharedReport(on: loop) {
            .status(of: server, version: version, listenerWarnings: warnings())
        }
        settings = SharedReport(on: loop) { .settings(of: server) }
        metrics = SharedReport(on: loop) {
            AdministrationAnswer(
                mediaType: MetricsText.mediaType, text: MetricsText.report(of: server, version: version))
        }
    }

    /// Answers a request.
    ///
    /// - Parameter requester: The process that sent it over the control socket; nil for a request to `admin.listen`, which any
    ///   program that can connect may send, including a browser that shows a page of another site.
    func answer(_ request: AdministrationRequest, from requester: Requester?) async -> AdministrationAnswer {
        if requester == nil, !Self.isOwn(request.host, server.settingsInForce.admin.hosts) {
            return .error(
                .misdirected,
                "the host is a name with a dot; if it is this server's, add it to its address in admin.listen: ?host=NAME"
            )
        }
        guard let endpoint = Endpoint(rawValue: request.path) else {
            if requester != nil, StoreRequests.type(at: request.path) != nil {
                return .error(.badRequest, "the method is \(request.method); allowed is POST")
            }
            let paths = requester == nil ? Endpoint.allCases.map(\.rawValue) : StoreRequests.paths
            return .error(.notFound, "there is nothing at this path; there are \(paths.joined(separator: ", "))")
        }
        guard endpoint.methods.contains(request.method) else {
            let allowed = endpoint.methods.joined(separator: ", ")
            var answer = AdministrationAnswer.error(.methodNotAllowed, "the method of this path is \(allowed)")
            answer.fields = ["Allow: \(allowed)"]
            return answer
        }
        switch endpoint {
        case .page: return StatusPage.answer
        case .status: return await status.next()
        case .history: return history.answer(request.query)
        case .settings: return await settings.next()
        // Alive as long as it answers: a restart would not help against a full disk.
        case .health: return AdministrationAnswer(json: ["alive": true])
        case .readiness:
            let readiness = server.readiness
            return AdministrationAnswer(readiness.isReady ? .ok : .unavailable, json: readiness)
        case .metrics: return await metrics.next()
        case .reload: return await reload(request, requester)
        }
    }

    private func reload(_ request: AdministrationRequest, _ requester: Requester?) async -> AdministrationAnswer {
        guard let requester else {
            return .error(
                .forbidden,
                """
                this is done only on control.sock, as its user or root: token-cache reload, or curl -X POST --unix-socket \
                \(ControlSocketAddress.path(in: server.settingsInForce.dataDirectoryPath)) http://localhost/reload
                """)
        }
        // A browser reaches the control socket only through a proxy, which would send the user's credential with a request
        // that a page of another site causes.
        guard !request.isFromPage else {
            return .error(.forbidden, "a page must not do this: it is for programs, which send no Origin")
        }
        let outcome = await server.reload("reload requested by \(requester)", by: requester.actor)
        return AdministrationAnswer(outcome.isReloaded ? .ok : .internalError, json: outcome)
    }

    // MARK: - Commands

    /// The store for the requests of a process; with an audit log, none is carried out that cannot be recorded.
    func store(for requester: Requester) -> AuditedStore {
        var store = AuditedStore(
            server.store.administrator,
            server.audit.map { OperatorTrail($0, by: requester.actor) { [server] in server.settingsInForce.audit } })
        store.loadAPIKeys = { change in
            log(change, by: requester)
            return await server.loadAPIKeys()
        }
        return store
    }

    func log(_ act: OperatorAct, by requester: Requester) {
        logger.notice("\(act.command) requested by \(requester): \(act.text)")
    }

    func log(_ error: StoreError, of command: String, by requester: Requester) {
        logger.notice("\(command) requested by \(requester) failed: \(error)")
    }

    // MARK: - Hosts

    /// Whether to answer a request over TCP for this host.
    ///
    /// With DNS rebinding, a page of another site makes its own host name resolve to this machine, and then reads the answers
    /// as if they came from its site. The browser sends that name as the host, never an IP address, `localhost` or another name
    /// without a dot.
    ///
    /// - Parameters:
    ///   - authority: A valid host, with or without a port; empty when the request has none, which no browser sends.
    ///   - names: Those of `admin.listen`.
    private static func isOwn(_ authority: String, _ names: [String]) -> Bool {
        let host = host(of: authority)
        if !host.contains(".") || IPAddress(host) != nil { return true }
        return names.contains { Self.host(of: $0) == host }
    }

    /// The host in lower case, without port, brackets, and the final dot of a fully qualified name.
    private static func host(of authority: String) -> String {
        if authority.hasPrefix("[") { return String(authority.dropFirst().prefix { $0 != "]" }) }
        let host = authority.prefix { $0 != ":" }.lowercased()
        return host.hasSuffix(".") ? String(host.dropLast()) : host
    }
}

/// A report that is created on another thread than the loop's, because that takes some time and reads files.
///
/// One report is created at a time, for all requests that arrived before it began, so that Swift's shared threads stay free
/// for other work, such as signals.
///
/// Belongs to its loop's thread.
final class SharedReport: @unchecked Sendable {
    // Unchecked: only tasks on the loop access the variables.

    private let loop: EventLoop
    private let make: @Sendable () -> AdministrationAnswer
    /// The latest report, and the same one as long as it has not begun.
    private var (latest, awaited): (Task<AdministrationAnswer, Never>?, Task<AdministrationAnswer, Never>?)

    init(on loop: EventLoop, _ make: @escaping @Sendable () -> AdministrationAnswer) {
        self.loop = loop
        self.make = make
    }

    /// Waits for a report that is begun after this call.
    func next() async -> AdministrationAnswer {
        if let awaited { return await awaited.value }
        let report = Task(executorPreference: loop) { [latest, make] in
            _ = await latest?.value
            self.awaited = nil
            return await Task { make() }.value
        }
        (latest, awaited) = (report, report)
        return await report.value
    }
}
