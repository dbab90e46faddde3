/// An answer before it becomes bytes.
package struct Response: Sendable {
    package var status: Status
    package var body: [UInt8]
    /// Bytes that the sender appends after `body`; included in Content-Length.
    package var laterBytes: Int
    /// The number by which an answer with status 200 is counted, if its body tells of an error; otherwise 0.
    package var code: UInt16
    /// Fields that few answers have; nil if there are none.
    package var extras: Extras?

    /// Fields of the head that few answers have, in an object of their own, so that most answers only pass on a nil.
    package final class Extras: Sendable {
        /// Where a redirect leads, or what was created; it is written unchanged, so the caller must have checked it.
        package let location: [UInt8]?
        /// For WWW-Authenticate: the credential that the request lacks.
        let challenge: Challenge?
        /// Seconds after which the client may try again; nil if that would not help.
        package let retryAfter: Int?
        /// The methods that the resource has, for a response with status 405; nil for GET, HEAD and POST.
        let allowedMethods: String?
        /// For Token-Refresh: what the client may do about a token that has expired.
        package let tokenRefresh: String?

        package init(
            location: [UInt8]? = nil, challenge: Challenge? = nil, retryAfter: Int? = nil,
            allowedMethods: String? = nil, tokenRefresh: String? = nil
        ) {
            self.location = location
            self.challenge = challenge
            self.retryAfter = retryAfter
            self.allowedMethods = allowedMethods
            self.tokenRefresh = tokenRefresh
        }
    }

    /// The number of the version that the answer shows, for ETag, which is not negative; -1 for none.
    private var versionOrNone: Int64

    /// The number of the version that the answer shows, for ETag; nil for none.
    package var version: Int64? {
        get { versionOrNone < 0 ? nil : versionOrNone }
        set { versionOrNone = newValue ?? -1 }
    }

    package init(
        status: Status = .ok, body: [UInt8], laterBytes: Int = 0, location: [UInt8]? = nil, code: UInt16 = 0,
        version: Int64? = nil
    ) {
        self.status = status
        self.body = body
        self.laterBytes = laterBytes
        extras = location.map { Extras(location: $0) }
        self.code = code
        versionOrNone = version ?? -1
    }

    /// The value of `WWW-Authenticate` (RFC 6750, section 3).
    package enum Challenge: Hashable, Sendable, CaseIterable {
        /// The request had no credential.
        case missing
        /// The credential is unknown, malformed, expired or revoked.
        case invalidToken
        /// The credential does not cover the request.
        case insufficientScope

        var value: StaticString {
            switch self {
            case .missing: "Bearer"
            case .invalidToken: #"Bearer error="invalid_token""#
            case .insufficientScope: #"Bearer error="insufficient_scope""#
            }
        }
    }
}

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
