import EventLoop
import HTTP
import Metrics
import Server
import Settings
import System
import TokenService
import TokenStore

/// Answers requests for the server's state on `admin.listen` and the control socket; on the latter, one also reloads.
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

    /// - Parameters:
    ///   - server: The server to report on.
    ///   - warnings: The present warnings about the administration's listeners.
    ///   - version: This program's version.
    ///   - history: The course of the server's figures.
    ///   - loop: The calling task's loop.
    init(
        _ server: Server, warnings: @escaping @Sendable () -> [String], _ version: String, _ history: History,
        on loop: EventLoop
    ) {
        self.server = server
        status = SharedReport(on: loop) {
            AdministrationAnswer(json: ServerStatus(of: server, version: version, listenerWarnings: warnings()))
        }
        settings = SharedReport(on: loop) { AdministrationAnswer(json: ServerSettings(of: server)) }
        metrics = SharedReport(on: loop) {
            AdministrationAnswer(
                mediaType: MetricsText.mediaType, text: MetricsReport.text(of: server, version: version))
        }
        self.history = history
    }

    /// Answers a request; nil when no endpoint has its path.
    ///
    /// - Parameter requester: The process that sent it over the control socket; nil for a request to `admin.listen`, which any
    ///   program that can connect may send, including a browser that shows a page of another site.
    func answer(_ request: AdministrationStream.Received, from requester: Requester?) async -> AdministrationAnswer? {
        if requester == nil, !Self.isOwn(request.host, server.settingsInForce.admin.hosts) {
            return .error(
                .misdirected,
                "the host is neither an IP address nor localhost; if it is a name of this server, add it to admin.hosts"
            )
        }
        guard let endpoint = Endpoint(rawValue: request.path) else { return nil }
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

    private func reload(
        _ request: AdministrationStream.Received, _ requester: Requester?
    ) async -> AdministrationAnswer {
        guard let requester else {
            return .error(
                .forbidden,
                """
                this is done only on control.sock, as its user or root: token-cache reload, or curl -X POST --unix-socket \
                \(ControlSocketAddress.path(server.settingsInForce)) http://localhost/reload
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

    /// The store for the requests of a process; with an audit log, none is carried out that cannot be recorded.
    func store(for requester: Requester) -> AuditedStore {
        AuditedStore(
            server.store.administrator,
            server.audit.map { OperatorTrail($0, by: requester.actor) { [server] in server.settingsInForce.audit } })
    }

    /// Logs that a command has changed the API keys, and loads the changed file.
    func note(_ change: APIKeyChange, by requester: Requester) async -> APIKeyChangeReply {
        APIKeyChangeReply(fault: await server.noteAPIKeyChange(change.text(by: "\(requester)")))
    }

    /// The answer for a path without an endpoint.
    var notFound: AdministrationAnswer {
        .error(
            .notFound,
            "there is nothing at this path; there are \(Endpoint.allCases.map(\.rawValue).joined(separator: ", "))"
        )
    }

    // MARK: - Hosts

    /// Whether to answer a request over TCP for this host.
    ///
    /// With DNS rebinding, a page of another site makes its own host name resolve to this machine, and then reads the answers
    /// as if they came from its site. The browser sends that name as the host, never an IP address or `localhost`.
    ///
    /// - Parameters:
    ///   - authority: A valid host, with or without a port; empty when the request has none, which no browser sends.
    ///   - names: `admin.hosts`.
    private static func isOwn(_ authority: String, _ names: [String]) -> Bool {
        let host = host(of: authority)
        if host.isEmpty || host == "localhost" || IPAddress(host) != nil { return true }
        return names.contains { Self.host(of: $0) == host }
    }

    /// The host in lower case, without port, brackets, and the final dot of a fully qualified name.
    private static func host(of authority: String) -> String {
        if authority.hasPrefix("[") { return String(authority.dropFirst().prefix { $0 != "]" }) }
        let host = authority.prefix { $0 != ":" }.lowercased()
        return host.hasSuffix(".") ? String(host.dropLast()) : host
    }
}

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
                // All these requests only read: a new connection may evict this one while it waits for its answer.
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
    private var waiting: [CheckedContinuation<AdministrationAnswer, Never>] = []
    private var isMaking = false

    init(on loop: EventLoop, _ make: @escaping @Sendable () -> AdministrationAnswer) {
        self.loop = loop
        self.make = make
    }

    /// Waits for a report that is begun after this call.
    func next() async -> AdministrationAnswer {
        await withCheckedContinuation { continuation in
            waiting.append(continuation)
            guard !isMaking else { return }
            isMaking = true
            Task(executorPreference: loop) { await self.makeReports() }
        }
    }

    private func makeReports() async {
        while !waiting.isEmpty {
            let served = waiting
            waiting = []
            let report = await Task { [make] in make() }.value
            for continuation in served { continuation.resume(returning: report) }
        }
        isMaking = false
    }
}
