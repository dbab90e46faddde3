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
    /// Without cookies, caches and stored credentials; one session for the whole process.
    public static let shared = URLSessionTransport()

    private let session: URLSession
    private let delegate = ExchangeDelegate()

    /// A transport with a session of its own.
    ///
    /// - Parameter configuration: By default an ephemeral one. Cookies, caches and stored credentials are turned off in any
    ///   case.
    public init(configuration: URLSessionConfiguration = .ephemeral) {
        // A copy, so that the caller's object does not change.
        let configuration = (configuration.copy() as? URLSessionConfiguration) ?? configuration
        configuration.httpCookieStorage = nil
        configuration.httpShouldSetCookies = false
        configuration.httpCookieAcceptPolicy = .never
        configuration.urlCache = nil
        configuration.urlCredentialStorage = nil
        configuration.requestCachePolicy = .reloadIgnoringLocalCacheData
        session = URLSession(configuration: configuration, delegate: delegate, delegateQueue: nil)
    }

    deinit {
        // The session holds its delegate until then.
        session.finishTasksAndInvalidate()
    }

    /// Sends a request once; redirections are answers.
    public func send(_ request: TransportRequest) async throws -> TransportResponse {
        let task = session.dataTask(with: urlRequest(request))
        let exchange = Exchange()
        delegate.begin(exchange, task)
        #if canImport(Darwin)
        defer { task.cancel() }
        #endif
        task.resume()
        return try await exchange.outcome.value()
    }

    private func urlRequest(_ request: TransportRequest) -> URLRequest {
        var made = URLRequest(url: request.url, cachePolicy: .reloadIgnoringLocalCacheData)
        made.httpMethod = request.method
        made.httpShouldHandleCookies = false
        made.httpBody = request.body
        for (name, value) in request.headers { made.setValue(value, forHTTPHeaderField: name) }
        // Only ends abandoned requests: FoundationNetworking has no timeout for whole answers, and takes one of less than a second
        // for none.
        made.timeoutInterval = max(2, request.timeout.seconds + 1)
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
        let isTooLong = received.withLock { received in
            // On Linux, the request continues; its further bytes are dropped.
            if received.body.count <= Self.limit { received.body.append(data) }
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

    #if canImport(FoundationNetworking)
    /// A refusal that asks for a password (401 with `WWW-Authenticate: Basic`) is the answer, as on Apple's systems.
    ///
    /// By default, a request without a password is neither repeated nor ended here. The answer is complete, so it can be cancelled.
    func urlSession(
        _ session: URLSession, task: URLSessionTask, didReceive challenge: URLAuthenticationChallenge,
        completionHandler: @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
    ) {
        exchange(of: task)?.complete(nil, task.response)
        completionHandler(.cancelAuthenticationChallenge, nil)
    }
    #endif

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
