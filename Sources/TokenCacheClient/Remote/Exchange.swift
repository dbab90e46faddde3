internal import Foundation

#if canImport(FoundationNetworking)
internal import FoundationNetworking
#endif

/// One request of a session with what has been received of its answer.
final class Exchange: Sendable {
    private struct Received {
        var head: (status: Int, url: URL, headers: [String: String])?
        var body = Data()
    }

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
            if received.body.count <= RemoteTokenCache.answerLimit { received.body.append(data) }
            return received.body.count > RemoteTokenCache.answerLimit
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
final class ExchangeDelegate: NSObject, URLSessionDataDelegate {
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
