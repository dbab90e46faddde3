#if canImport(FoundationNetworking)
internal import Foundation
public import FoundationNetworking
#else
public import Foundation
#endif

/// Sends requests by `URLSession`.
///
/// Each request has its own deadline, because the timeouts of FoundationNetworking do not work: that of the whole request has no
/// effect, and one of less than a second means none. After the deadline a request is cancelled on Apple's systems. On Linux, a
/// `cancel()` during the completion ends the process, so the request is left to end by itself.
public final class URLSessionTransport: Transport {
    static let shared = URLSessionTransport()

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
        let timer = Task {
            try await Task.sleep(for: request.timeout)
            exchange.outcome.finish(.failure(TokenCacheError.timedOut))
        }
        defer {
            timer.cancel()
            #if canImport(Darwin)
            task.cancel()
            #endif
        }
        task.resume()
        return try await exchange.outcome.value()
    }

    private func urlRequest(_ request: TransportRequest) -> URLRequest {
        var made = URLRequest(url: request.url, cachePolicy: .reloadIgnoringLocalCacheData)
        made.httpMethod = request.method
        made.httpShouldHandleCookies = false
        made.httpBody = request.body
        for (name, value) in request.headers { made.setValue(value, forHTTPHeaderField: name) }
        // Only ends abandoned requests; the timer is the deadline.
        made.timeoutInterval = max(2, request.timeout.seconds + 1)
        return made
    }
}

extension Duration {
    /// In seconds.
    var seconds: TimeInterval {
        TimeInterval(components.seconds) + TimeInterval(components.attoseconds) * 1e-18
    }
}
