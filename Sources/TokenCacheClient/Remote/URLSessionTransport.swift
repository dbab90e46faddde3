#if canImport(FoundationNetworking)
internal import Foundation
public import FoundationNetworking
#else
public import Foundation
#endif

/// Sends requests by `URLSession`.
///
/// Each request has its own deadline, because the timeouts of FoundationNetworking do not do what they say: that of the whole
/// request has no effect, and one of less than a second means none. A request that is given up is cancelled on Apple's
/// systems; on Linux a `cancel()` that meets the completion ends the process, so there the request is left to run out.
public final class URLSessionTransport: Transport {
    static let shared = URLSessionTransport()

    private let session: URLSession
    private let delegate = ExchangeDelegate()

    /// A transport with a session of its own.
    ///
    /// - Parameter configuration: By default an ephemeral one. Cookies, caches and stored credentials are turned off in any
    ///   case.
    public init(configuration: URLSessionConfiguration = .ephemeral) {
        // The caller's own object stays as it is.
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
        // Only so that abandoned requests end: the deadline is the timer's.
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
