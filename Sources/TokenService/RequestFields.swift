internal import HTTP

/// The contract's two parameters as a request carries them, decoded and not yet checked.
///
/// They come from the query and, in a POST, from a form body, which wins; of equal names in one source the last counts.
///
/// One is used again and again, so that most requests need no allocation.
struct RequestFields {
    private var uniqueIDBytes: [UInt8] = []
    private var hasUniqueID = false
    private var tokenInfo: [UInt8]?

    /// Reads a request and returns its parameters; nil for one that it has not.
    ///
    /// - Parameters:
    ///   - request: The request.
    ///   - bytes: The request's bytes.
    ///   - readsJSON: Whether an `application/json` body counts.
    mutating func read(
        _ request: Request, in bytes: Span<UInt8>, readsJSON: Bool
    ) -> (uniqueID: [UInt8]?, tokenInfo: [UInt8]?) {
        hasUniqueID = false
        readFields(request, in: bytes, readsJSON: readsJSON)
        // Not kept: it would be copied when the next one is read.
        return (hasUniqueID ? uniqueIDBytes : nil, tokenInfo.take())
    }

    private mutating func readFields(_ request: Request, in bytes: Span<UInt8>, readsJSON: Bool) {
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
                if name.span.equals(whole, Names.uniqueID) { setUniqueID([UInt8](value, in: bytes)) }
                if name.span.equals(whole, Names.tokenInfo) { tokenInfo = [UInt8](value, in: bytes) }
            }
        case .json where readsJSON:
            guard let body = JSONBody(request.body, of: bytes) else { return }
            if let uniqueID = body.uniqueID { setUniqueID(uniqueID) }
            tokenInfo = body.tokenInfo ?? tokenInfo
        case .multipartForm(nil), .json, .other: break
        }
    }

    /// Where the id of a query lies, undecoded; nil when it has none.
    static func uniqueID(in query: ByteRange, of bytes: Span<UInt8>) -> ByteRange? {
        var last: ByteRange?
        URLEncodedForm.forEachPair(in: query, of: bytes) { name, value in
            if URLEncodedForm.name(name, of: bytes, standsFor: Names.uniqueID) { last = value }
        }
        return last
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
        if let lastID {
            hasUniqueID = true
            uniqueIDBytes.removeAll(keepingCapacity: true)
            URLEncodedForm.appendDecoded(lastID, of: bytes, to: &uniqueIDBytes)
        }
        if let lastInfo {
            var decoded: [UInt8] = []
            URLEncodedForm.appendDecoded(lastInfo, of: bytes, to: &decoded)
            tokenInfo = decoded
        }
    }

    private mutating func setUniqueID(_ bytes: [UInt8]) {
        uniqueIDBytes = bytes
        hasUniqueID = true
    }

    private enum Names {
        static let uniqueID: StaticString = "unique_id"
        static let tokenInfo: StaticString = "token_info"
    }
}
