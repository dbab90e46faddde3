internal import HTTP

/// The contract's two parameters as a request carries them, decoded and not yet checked.
///
/// They come from the query and, in a POST, from a form body, which wins; of equal names in one source the last counts.
struct RequestFields {
    private(set) var uniqueID: [UInt8]?
    private(set) var tokenInfo: [UInt8]?

    /// - Parameters:
    ///   - request: The request.
    ///   - bytes: The request's bytes.
    ///   - readsJSON: Whether an `application/json` body counts.
    init(of request: Request, in bytes: Span<UInt8>, readsJSON: Bool) {
        readURLEncoded(request.head.query, of: bytes)
        guard request.head.method == .post, !request.body.isEmpty, let contentType = request.head.contentType else {
            return
        }
        switch MediaType(contentType, of: bytes) {
        case .urlEncodedForm: readURLEncoded(request.body, of: bytes)
        case .multipartForm(.some(let boundary)):
            var form = MultipartForm(in: request.body, boundary: boundary)
            while let (name, value) = form.nextField(of: bytes) {
                let whole = ByteRange(0, name.count)
                if name.span.equals(whole, Names.uniqueID) { uniqueID = [UInt8](value, in: bytes) }
                if name.span.equals(whole, Names.tokenInfo) { tokenInfo = [UInt8](value, in: bytes) }
            }
        case .json where readsJSON:
            guard let body = JSONBody(request.body, of: bytes) else { return }
            uniqueID = body.uniqueID ?? uniqueID
            tokenInfo = body.tokenInfo ?? tokenInfo
        case .multipartForm(nil), .json, .other: break
        }
    }

    private mutating func readURLEncoded(_ range: ByteRange, of bytes: Span<UInt8>) {
        var lastID: ByteRange?
        var lastInfo: ByteRange?
        URLEncodedForm.forEachPair(in: range, of: bytes) { name, value in
            if URLEncodedForm.name(name, of: bytes, standsFor: Names.uniqueID) {
                lastID = value
            } else if URLEncodedForm.name(name, of: bytes, standsFor: Names.tokenInfo) {
                lastInfo = value
            }
        }
        // Only what counts is decoded.
        if let lastID { uniqueID = URLEncodedForm.decoded(lastID, of: bytes) }
        if let lastInfo { tokenInfo = URLEncodedForm.decoded(lastInfo, of: bytes) }
    }

    private enum Names {
        static let uniqueID: StaticString = "unique_id"
        static let tokenInfo: StaticString = "token_info"
    }
}
