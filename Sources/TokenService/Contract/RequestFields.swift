package import HTTP
import JSON

/// The contract's two parameters in a request, decoded but not yet checked; nil for a missing one.
///
/// They come from the query and, in a POST, from the body, which takes precedence. Of equal names in one source the last counts.
/// If that is an array (`unique_id[]`), which the contract does not accept, the parameter is missing.
package struct RequestFields {
    package private(set) var uniqueID: [UInt8]?
    package private(set) var tokenInfo: [UInt8]?

    /// - Parameters:
    ///   - request: The request.
    ///   - bytes: The request's bytes.
    ///   - readsJSON: Whether an `application/json` body counts.
    package init(_ request: Request, in bytes: Span<UInt8>, readsJSON: Bool) {
        readURLEncoded(request.head.query, of: bytes, from: .query)
        guard request.head.method == .post, !request.body.isEmpty, let contentType = request.head.fields.contentType
        else {
            return
        }
        switch MediaType(contentType, of: bytes) {
        case .urlEncodedForm: readURLEncoded(request.body, of: bytes, from: .body)
        case .multipartForm(.some(let boundary)):
            var form = MultipartForm(in: request.body, boundary: boundary)
            while let (name, value) = form.nextField(of: bytes) {
                switch ParameterRole(of: name.span, for: Names.uniqueID) {
                case .parameter: uniqueID = [UInt8](value, in: bytes)
                case .element: uniqueID = nil
                case .other: break
                }
                switch ParameterRole(of: name.span, for: Names.tokenInfo) {
                case .parameter: tokenInfo = [UInt8](value, in: bytes)
                case .element: tokenInfo = nil
                case .other: break
                }
            }
        case .json where readsJSON:
            guard let body = JSONBody(request.body, of: bytes) else { return }
            uniqueID = body.uniqueID ?? uniqueID
            tokenInfo = body.tokenInfo ?? tokenInfo
        case .multipartForm(nil), .json, .other: break
        }
    }

    /// The range of the id in a query, undecoded; nil if it has none.
    static func uniqueID(in query: ByteRange, of bytes: Span<UInt8>) -> ByteRange? {
        var last = Last.none
        URLEncodedForm.forEachPair(in: query, of: bytes, from: .query) { name, value in
            last.note(value, as: URLEncodedForm.role(of: name, in: bytes, for: Names.uniqueID))
        }
        return if case .value(let id) = last { id } else { nil }
    }

    /// The last pair with a parameter's name.
    private enum Last {
        /// There is no such pair.
        case none
        /// The undecoded value.
        case value(ByteRange)
        case array

        mutating func note(_ value: ByteRange, as role: ParameterRole) {
            switch role {
            case .parameter: self = .value(value)
            case .element: self = .array
            case .other: break
            }
        }

        /// Replaces what an earlier source had; only the last value is decoded.
        func replace(_ parameter: inout [UInt8]?, of bytes: Span<UInt8>) {
            switch self {
            case .none: break
            case .value(let value): parameter = URLEncodedForm.decoded(value, of: bytes)
            case .array: parameter = nil
            }
        }
    }

    private mutating func readURLEncoded(
        _ range: ByteRange, of bytes: Span<UInt8>, from source: URLEncodedForm.Source
    ) {
        var (lastID, lastInfo) = (Last.none, Last.none)
        URLEncodedForm.forEachPair(in: range, of: bytes, from: source) { name, value in
            lastID.note(value, as: URLEncodedForm.role(of: name, in: bytes, for: Names.uniqueID))
            lastInfo.note(value, as: URLEncodedForm.role(of: name, in: bytes, for: Names.tokenInfo))
        }
        lastID.replace(&uniqueID, of: bytes)
        lastInfo.replace(&tokenInfo, of: bytes)
    }

    private enum Names {
        static let uniqueID: StaticString = "unique_id"
        static let tokenInfo: StaticString = "token_info"
    }
}

/// The parameters in an `application/json` body: an extension of the contract that a setting turns on.
///
/// The whole body must be one JSON object (RFC 8259) with each name once. `unique_id` is a string. `token_info` is a string, or an
/// object, which is stored as its text. Any other body has no parameters.
struct JSONBody {
    private(set) var uniqueID: [UInt8]?
    private(set) var tokenInfo: [UInt8]?
    /// Only for the API; the contract has no such member.
    private(set) var user: [UInt8]?

    private static let memberLimit = 256

    init?(_ range: ByteRange, of bytes: Span<UInt8>) {
        guard let members = JSONObject(bytes, range.indices, memberLimit: Self.memberLimit) else { return nil }
        if case .string(let text) = members["user"] { user = text }
        switch members["unique_id"] {
        case nil: break
        case .string(let text): uniqueID = text
        default: return nil
        }
        switch members["token_info"] {
        case nil: break
        case .string(let text): tokenInfo = text
        case .object(let object): tokenInfo = bytes.bytes(object)
        default: return nil
        }
    }
}
