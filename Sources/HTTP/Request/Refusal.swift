/// Why a request is answered with an error of HTTP before the service sees it.
///
/// For all but `foreignPage` and `foreignHost` the connection is then closed, because it is no longer certain where the next request
/// would begin.
package enum Refusal: Error, Hashable, Sendable, CaseIterable {
    // 400: ambiguous, as two parsers could read it differently.
    case bareLineFeed
    case bareCarriageReturn
    case malformedRequestLine
    case malformedMethod
    case malformedTarget
    case malformedVersion
    case malformedFieldName
    case malformedFieldValue
    case foldedField
    case missingHost
    case repeatedHost
    case malformedHost
    case repeatedContentLength
    case malformedContentLength
    case repeatedTransferEncoding
    case chunkedNotLast
    case transferEncodingInOldVersion
    case lengthAndTransferEncoding
    case repeatedContentType
    case malformedChunkSize
    case chunkLineTooLong
    case chunkExtensionsTooLong
    case malformedChunkEnd
    /// Plain HTTP on a TLS port.
    case plainRequest
    // The others, each with its own status.
    case connectMethod
    /// A page of another site made a browser on this machine send it.
    case foreignPage
    case foreignHost
    case headTimeout
    case bodyTimeout
    case bodyTooLarge
    case targetTooLong
    case unknownExpectation
    case headTooLarge
    case tooManyFields
    case unknownTransferCoding
    case versionNotSupported
    case tooManyConnections
    case outOfBuffers

    package var status: Status {
        switch self {
        case .connectMethod: .methodNotAllowed
        case .foreignPage: .forbidden
        case .foreignHost: .misdirected
        case .headTimeout, .bodyTimeout: .requestTimeout
        case .bodyTooLarge: .contentTooLarge
        case .targetTooLong: .targetTooLong
        case .unknownExpectation: .expectationFailed
        case .headTooLarge, .tooManyFields: .headTooLarge
        case .unknownTransferCoding: .notImplemented
        case .versionNotSupported: .versionNotSupported
        case .tooManyConnections, .outOfBuffers: .unavailable
        default: .badRequest
        }
    }

    /// What is wrong with the request, for its sender; quotes nothing of it.
    package var message: String {
        switch self {
        case .bareLineFeed: "A line of the request head ends with LF alone; lines end with CR LF."
        case .bareCarriageReturn: "A CR in the request head is not followed by LF."
        case .malformedRequestLine: "The request line must be: method, one space, target, one space, HTTP version."
        case .malformedMethod: "The method has characters that a method cannot have."
        case .malformedTarget:
            "The request target is malformed; bytes other than printable ASCII must be percent-encoded."
        case .malformedVersion: "The HTTP version is malformed."
        case .malformedFieldName: "A header line must start with a name, directly followed by a colon."
        case .malformedFieldValue: "A header value has control characters."
        case .foldedField: "A header line starts with white space; folded headers are not accepted."
        case .missingHost: "The Host header is missing."
        case .repeatedHost: "The Host header is repeated."
        case .malformedHost: "The host is not a valid host name or address with an optional port."
        case .repeatedContentLength: "The Content-Length header is repeated."
        case .malformedContentLength: "The Content-Length header must be one decimal number."
        case .repeatedTransferEncoding: "The Transfer-Encoding header is repeated."
        case .chunkedNotLast: "The Transfer-Encoding of a request must end with chunked, once."
        case .transferEncodingInOldVersion: "HTTP/1.0 has no Transfer-Encoding."
        case .lengthAndTransferEncoding: "Content-Length and Transfer-Encoding exclude each other."
        case .repeatedContentType: "The Content-Type header is repeated."
        case .malformedChunkSize: "A chunk's size line is malformed."
        case .chunkLineTooLong: "A chunk's size line is too long."
        case .chunkExtensionsTooLong: "The chunk extensions of the body are too long together."
        case .malformedChunkEnd: "A chunk is not followed by CR LF."
        case .plainRequest: "This port speaks TLS: use https."
        case .connectMethod: "CONNECT is not supported: this is no proxy."
        case .foreignPage: "On this machine, plain HTTP is for programs: a page of another site must not send this."
        case .foreignHost:
            "On this machine, plain HTTP is answered under an address, localhost and https.public_host, not under this host."
        case .headTimeout: "The request head did not arrive in time."
        case .bodyTimeout: "The request body did not arrive in time."
        case .bodyTooLarge: "The request body is too large."
        case .targetTooLong: "The request line is too long."
        case .unknownExpectation: "The only expectation that can be met is 100-continue."
        case .headTooLarge: "The request head is too large."
        case .tooManyFields: "The request has too many header lines."
        case .unknownTransferCoding: "The only transfer coding understood is chunked."
        case .versionNotSupported: "The HTTP versions understood are 1.0 and 1.1."
        case .tooManyConnections: "Too many connections; try again later."
        case .outOfBuffers: "Too many large requests are under way; try again later."
        }
    }
}
