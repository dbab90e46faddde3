#if canImport(FoundationNetworking)
import Foundation
public import FoundationNetworking
#else
public import Foundation
#endif

/// Sends requests by `URLSession`.
///
/// When the caller's task is cancelled, which `RemoteTokenCache` does at its deadline, the request is cancelled as well on Apple's
/// systems. On Linux, a `cancel()` during the completion ends the process, so the request is left to end by itself.
public final class URLSessionTransport: Transport {
    /// Without cookies, caches and stored credentials; one for the whole process.
    public static let shared = URLSessionTransport()

    #if canImport(Darwin)
    /// Answers a challenge as `urlSession(_:didReceive:completionHandler:)` of a session's delegate does, which it may call.
    public typealias Challenge =
        @Sendable (
            URLAuthenticationChallenge,
            @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
        ) -> Void

    private let session: URLSession
    private let delegate: ExchangeDelegate

    /// A transport with a session of its own.
    ///
    /// - Parameters:
    ///   - configuration: By default an ephemeral one. Cookies, caches and stored credentials are turned off in any case.
    ///   - challenge: Checks the server's key (pinning), or chooses the client's certificate; nil leaves both to the system. Linux
    ///     has neither, nor this parameter.
    public init(configuration: URLSessionConfiguration = .ephemeral, challenge: Challenge? = nil) {
        delegate = ExchangeDelegate(challenge)
        session = URLSession(configuration: Self.stateless(configuration), delegate: delegate, delegateQueue: nil)
    }

    deinit {
        // The session holds its delegate until then.
        session.finishTasksAndInvalidate()
    }
    #else
    private let configuration: URLSessionConfiguration

    /// A transport.
    ///
    /// - Parameter configuration: By default an ephemeral one. Cookies, caches and stored credentials are turned off in any
    ///   case.
    public init(configuration: URLSessionConfiguration = .ephemeral) {
        self.configuration = Self.stateless(configuration)
    }
    #endif

    private static func stateless(_ configuration: URLSessionConfiguration) -> URLSessionConfiguration {
        // A copy, so that the caller's object does not change.
        let configuration = (configuration.copy() as? URLSessionConfiguration) ?? configuration
        configuration.httpCookieStorage = nil
        configuration.httpShouldSetCookies = false
        configuration.httpCookieAcceptPolicy = .never
        configuration.urlCache = nil
        configuration.urlCredentialStorage = nil
        configuration.requestCachePolicy = .reloadIgnoringLocalCacheData
        return configuration
    }

    /// Sends a request once; redirections are answers.
    public func send(_ request: TransportRequest) async throws -> TransportResponse {
        let exchange = Exchange()
        #if !canImport(Darwin)
        try Self.refuseProxy(for: request.url)
        // A session for each request, so that none finds the connection of an earlier one. FoundationNetworking sends a POST again
        // without its body if the server closes a kept connection just then, and abandoned requests keep a session's six connections
        // to a host.
        let delegate = ExchangeDelegate()
        let session = URLSession(configuration: configuration, delegate: delegate, delegateQueue: nil)
        defer { session.finishTasksAndInvalidate() }
        #endif
        let task = session.dataTask(with: urlRequest(request))
        delegate.begin(exchange, task)
        #if canImport(Darwin)
        defer { task.cancel() }
        #endif
        task.resume()
        return try await withTaskCancellationHandler {
            try await exchange.outcome.value()
        } onCancel: {
            exchange.outcome.finish(.failure(CancellationError()))
        }
    }

    #if !canImport(Darwin)
    /// Refuses a plain request that libcurl would send through a proxy of the environment, in the clear and away from this machine.
    private static func refuseProxy(for url: URL) throws(TokenCacheError) {
        let environment = ProcessInfo.processInfo.environment
        guard url.scheme == "http",
            ["http_proxy", "all_proxy", "ALL_PROXY"].contains(where: { environment[$0]?.isEmpty == false })
        else { return }
        let (host, exempt) = (url.host() ?? "", environment["no_proxy"] ?? environment["NO_PROXY"] ?? "")
        // libcurl also knows suffixes and networks, by rules that depend on its version.
        if exempt == "*" || exempt.split(whereSeparator: { ", ".contains($0) }).contains(where: { $0 == host }) {
            return
        }
        throw .unreachable(
            code: URLError.Code.appTransportSecurityRequiresSecureConnection.rawValue,
            detail: "plain http would go through the proxy of the environment; name the host in no_proxy")
    }
    #endif

    private func urlRequest(_ request: TransportRequest) -> URLRequest {
        var made = URLRequest(url: request.url, cachePolicy: .reloadIgnoringLocalCacheData)
        made.httpMethod = request.method
        made.httpShouldHandleCookies = false
        made.httpBody = request.body
        for (name, value) in request.headers { made.setValue(value, forHTTPHeaderField: name) }
        // Only ends abandoned requests: FoundationNetworking has no timeout for whole answers, takes one of less than a second for
        // 0, after which every request fails, and one of more than 1e15 ends the process.
        made.timeoutInterval = min(max(2, request.timeout.seconds + 1), 1e9)
        return made
    }
}

/// One request of a session with what has been received of its answer.
private final class Exchange: Sendable {
    private struct Received {
        var head: (status: Int, url: URL, headers: [String: String])?
        var body = Data()
    }

    /// Longer answers are refused: token-cache itself accepts no body beyond `limits.body`, by default 1 MiB.
    private static let limit = 8 << 20

    let outcome = Outcome<TransportResponse>()
    private let received = Locked(Received())

    func receive(_ response: URLResponse) {
        guard let response = response as? HTTPURLResponse, let url = response.url else { return }
        var headers: [String: String] = [:]
        for (name, value) in response.allHeaderFields {
            if let name = name as? String, let value = value as? String { headers[name] = value }
        }
        let head = (response.statusCode, url, headers)
        received.withLock { $0.head = head }
    }

    func receive(_ data: Data) {
        // On Linux, an abandoned request continues; nobody needs its bytes.
        let isOver = outcome.isFinished
        let isTooLong = received.withLock { received in
            if isOver { received.body = Data() } else { received.body.append(data) }
            return received.body.count > Self.limit
        }
        if isTooLong {
            outcome.finish(
                .failure(TokenCacheError.unexpectedAnswer(status: 200, "it is longer than any of a token cache")))
        }
    }

    /// Called when the request has ended.
    ///
    /// - Parameters:
    ///   - error: Why it failed.
    ///   - response: The task's answer, in case it was not reported before.
    func complete(_ error: (any Error)?, _ response: URLResponse?) {
        if let error {
            let code = (error as? URLError)?.code ?? .unknown
            // The description says for example what is wrong with a certificate, and does not contain the URL.
            let failure = TokenCacheError.unreachable(code: code.rawValue, detail: error.localizedDescription)
            outcome.finish(.failure(code == .timedOut ? TokenCacheError.timedOut : failure))
            return
        }
        if let response, received.withLock({ $0.head == nil }) { receive(response) }
        let (head, body) = received.withLock { ($0.head, $0.body) }
        guard let head else {
            outcome.finish(.failure(TokenCacheError.unreachable(code: URLError.Code.badServerResponse.rawValue)))
            return
        }
        outcome.finish(
            .success(TransportResponse(url: head.url, status: head.status, headers: head.headers, body: body)))
    }
}

/// Passes the session's events to their exchanges.
///
/// One for the whole session, as on Linux URLSession does not ask a task's delegate whether to follow a redirection.
private final class ExchangeDelegate: NSObject, URLSessionDataDelegate {
    private let exchanges = Locked<[Int: Exchange]>([:])
    #if canImport(Darwin)
    private let challenge: URLSessionTransport.Challenge?

    init(_ challenge: URLSessionTransport.Challenge?) {
        self.challenge = challenge
    }
    #endif

    func begin(_ exchange: Exchange, _ task: URLSessionTask) {
        let number = task.taskIdentifier
        exchanges.withLock { $0[number] = exchange }
    }

    private func exchange(of task: URLSessionTask) -> Exchange? {
        let number = task.taskIdentifier
        return exchanges.withLock { $0[number] }
    }

    func urlSession(
        _ session: URLSession, task: URLSessionTask, willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest, completionHandler: @escaping @Sendable (URLRequest?) -> Void
    ) {
        // The redirection itself is the answer, whatever the session does with its body.
        exchange(of: task)?.receive(response)
        exchange(of: task)?.complete(nil, response)
        completionHandler(nil)
    }

    /// Called for TLS on Apple's systems, and for a refusal that asks for a password (401 with `WWW-Authenticate: Basic`).
    func urlSession(
        _ session: URLSession, task: URLSessionTask, didReceive challenge: URLAuthenticationChallenge,
        completionHandler: @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    ) {
        #if canImport(Darwin)
        if let answer = self.challenge { return answer(challenge, completionHandler) }
        completionHandler(.performDefaultHandling, nil)
        #else
        // The refusal is the answer, as on Apple's systems: by default, a request without a password is neither repeated nor ended
        // here. The answer is complete, so it can be cancelled.
        exchange(of: task)?.complete(nil, task.response)
        completionHandler(.cancelAuthenticationChallenge, nil)
        #endif
    }

    func urlSession(
        _ session: URLSession, dataTask: URLSessionDataTask, didReceive response: URLResponse,
        completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void
    ) {
        exchange(of: dataTask)?.receive(response)
        completionHandler(.allow)
    }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        exchange(of: dataTask)?.receive(data)
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        let number = task.taskIdentifier
        let exchange = exchanges.withLock { $0.removeValue(forKey: number) }
        exchange?.complete(error, task.response)
    }
}

extension Duration {
    /// In seconds.
    var seconds: TimeInterval {
        TimeInterval(components.seconds) + TimeInterval(components.attoseconds) * 1e-18
    }
}
