/// A status code of RFC 9110, section 15, as far as this server sends it.
package enum Status: UInt16, Sendable, CaseIterable {
    case ok = 200
    case created = 201
    case found = 302
    case notModified = 304
    case permanentRedirect = 308
    case badRequest = 400
    case unauthorized = 401
    case forbidden = 403
    case notFound = 404
    case methodNotAllowed = 405
    case requestTimeout = 408
    case preconditionFailed = 412
    case contentTooLarge = 413
    case targetTooLong = 414
    case expectationFailed = 417
    case misdirected = 421
    case preconditionRequired = 428
    case tooManyRequests = 429
    case headTooLarge = 431
    case internalError = 500
    case notImplemented = 501
    case unavailable = 503
    case versionNotSupported = 505

    /// The words of the status line.
    package var reason: String {
        switch self {
        case .ok: "OK"
        case .created: "Created"
        case .found: "Found"
        case .notModified: "Not Modified"
        case .permanentRedirect: "Permanent Redirect"
        case .badRequest: "Bad Request"
        case .unauthorized: "Unauthorized"
        case .forbidden: "Forbidden"
        case .notFound: "Not Found"
        case .methodNotAllowed: "Method Not Allowed"
        case .requestTimeout: "Request Timeout"
        case .preconditionFailed: "Precondition Failed"
        case .contentTooLarge: "Content Too Large"
        case .targetTooLong: "URI Too Long"
        case .expectationFailed: "Expectation Failed"
        case .misdirected: "Misdirected Request"
        case .preconditionRequired: "Precondition Required"
        case .tooManyRequests: "Too Many Requests"
        case .headTooLarge: "Request Header Fields Too Large"
        case .internalError: "Internal Server Error"
        case .notImplemented: "Not Implemented"
        case .unavailable: "Service Unavailable"
        case .versionNotSupported: "HTTP Version Not Supported"
        }
    }
}
