public import Foundation

/// How a cache sends requests: by `URLSession`, or by what tests and apps with an HTTP stack of their own provide.
///
/// A transport sends each request once. It must not follow redirections, keep cookies or answer from a cache.
public protocol Transport: Sendable {
    /// Sends a request and waits for the whole answer.
    ///
    /// - Throws: `TokenCacheError.unreachable`, `.timedOut` or `.unexpectedAnswer`; `CancellationError` if the task is
    ///   cancelled, which the cache does after the request's timeout.
    func send(_ request: TransportRequest) async throws -> TransportResponse
}

/// A request as it goes to the server.
public struct TransportRequest: Sendable, Hashable {
    /// `GET` or `POST`.
    public var method: String
    /// With the query.
    public var url: URL
    /// The header fields, by name.
    public var headers: [String: String]
    /// Nil for GET.
    public var body: Data?
    /// How long the cache waits for the whole answer.
    public var timeout: Duration

    /// A request with all its parts.
    public init(method: String, url: URL, headers: [String: String], body: Data?, timeout: Duration) {
        self.method = method
        self.url = url
        self.headers = headers
        self.body = body
        self.timeout = timeout
    }
}

/// An answer as it came from the server.
public struct TransportResponse: Sendable, Hashable {
    /// Where it came from.
    public var url: URL
    /// The status code.
    public var status: Int
    /// The header fields, with names in lower case.
    public var headers: [String: String]
    /// The whole body.
    public var body: Data

    /// An answer with all its parts.
    ///
    /// - Parameters:
    ///   - url: Where it came from.
    ///   - status: The status code.
    ///   - headers: The header fields, with names in any case.
    ///   - body: The whole body.
    public init(url: URL, status: Int, headers: [String: String], body: Data) {
        self.url = url
        self.status = status
        self.headers = Dictionary(headers.map { ($0.key.lowercased(), $0.value) }) { _, last in last }
        self.body = body
    }
}

extension TransportRequest: CustomStringConvertible, CustomReflectable {
    /// The method and the host, as everything else can contain secrets.
    public var description: String { "\(method) to \(url.host() ?? "")" }

    /// A mirror without headers, query and body.
    public var customMirror: Mirror { Mirror(self, children: ["method": method, "timeout": timeout]) }
}

extension TransportResponse: CustomStringConvertible, CustomReflectable {
    /// The status and the length.
    public var description: String { "\(status), \(body.count) bytes" }

    /// A mirror without headers and body.
    public var customMirror: Mirror { Mirror(self, children: ["status": status, "bytes": body.count]) }
}
