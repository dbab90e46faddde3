/// How a request's body is delimited (RFC 9112, section 6).
package enum BodyFraming: Hashable, Sendable {
    case none
    /// `Content-Length`, more than 0.
    case length(Int)
    case chunked
}

/// The head of a request: the ranges of its parts, counted from the request's first byte, and how it is framed.
package struct RequestHead: Sendable {
    package internal(set) var method = Method.other
    package internal(set) var methodName = ByteRange.empty
    /// The target as sent.
    package internal(set) var target = ByteRange.empty
    /// From the first `/` to the `?`; `*` for `OPTIONS *`; empty for an absolute target without a path.
    package internal(set) var path = ByteRange.empty
    /// What follows the first `?`; empty if there is none.
    package internal(set) var query = ByteRange.empty
    /// Host and port: of an absolute target, otherwise of the Host header.
    ///
    /// Valid, perhaps empty.
    package internal(set) var authority = ByteRange.empty
    /// 0 or 1; later minor versions are read as 1 (RFC 9110, section 6.2).
    package internal(set) var minorVersion: UInt8 = 1
    package internal(set) var fields = HeaderFields()
    package internal(set) var framing = BodyFraming.none
    /// `Expect: 100-continue` in HTTP/1.1.
    var expectsContinue = false
    /// Whether the client lets the connection stay open after the answer (RFC 9112, section 9.3).
    package internal(set) var keepsAlive = true
    /// The length of the head with the empty line that ends it; until that is read, of the lines up to the last field.
    package internal(set) var length = 0

    package init() {}
}

/// A whole request: its head, and its body with any chunking undone.
package struct Request: Sendable {
    package let head: RequestHead
    package let body: ByteRange
}

/// Values of fields that are only looked up on demand, as few requests have them.
extension RequestHead {
    /// The values of all lines of a field, in order.
    ///
    /// Searches the whole head.
    package func values(of field: HeaderField, in bytes: Span<UInt8>) -> [ByteRange] {
        values(in: bytes) { bytes.equalsIgnoringCase($0, field.name) }
    }

    /// The value of each X-Forwarded-Proto, in order.
    package func forwardedProtos(in bytes: Span<UInt8>) -> [ByteRange] {
        values(fields.forwarding.protos, of: .forwardedProto, in: bytes)
    }

    /// The value of each X-Forwarded-For, in order: the last element of the last one is the nearest proxy's.
    package func forwardedAddresses(in bytes: Span<UInt8>) -> [ByteRange] {
        values(fields.forwarding.addresses, of: .forwardedFor, in: bytes)
    }

    private func values(_ lines: FieldLines, of field: HeaderField, in bytes: Span<UInt8>) -> [ByteRange] {
        if lines.isEmpty { return [] }
        return lines.only.map { [$0] } ?? values(of: field, in: bytes)
    }

    /// The values of all lines of the field with this name, in order; `name` is in lower case.
    package func values(ofFieldNamed name: [UInt8], in bytes: Span<UInt8>) -> [ByteRange] {
        values(in: bytes) { bytes.equalsIgnoringCase($0, name) }
    }

    private func values(in bytes: Span<UInt8>, where isNamed: (_ name: ByteRange) -> Bool) -> [ByteRange] {
        var values: [ByteRange] = []
        var start = 0
        while let lineFeed = bytes.firstIndex(of: .lineFeed, in: start..<length) {
            // The request line is not a field: no field's name precedes its first colon.
            if let colon = bytes.firstIndex(of: UInt8(ascii: ":"), in: start..<lineFeed),
                isNamed(ByteRange(start, colon))
            {
                // Before each line feed of a head that was read is a carriage return.
                values.append(bytes.trimmed(ByteRange(colon + 1, lineFeed - 1)))
            }
            start = lineFeed + 1
        }
        return values
    }

    /// Whether the browser's headers say that a page of another origin caused the request.
    ///
    /// `null`, the origin of a page in a sandbox or of a file, counts as another one. Programs do not send these headers.
    ///
    /// - Parameter allowsTLS: Whether the page may have come over HTTPS, as behind a proxy that ends TLS.
    package func isFromForeignPage(in bytes: Span<UInt8>, allowsTLS: Bool = false) -> Bool {
        let sites = values(of: .fetchSite, in: bytes)
        if sites.contains(where: { Self.isOtherSite($0, in: bytes) }) { return true }
        let origins = values(of: .origin, in: bytes)
        guard let origin = origins.first else { return false }
        let scheme: StaticString = allowsTLS && bytes.hasPrefix("https://", in: origin.indices) ? "https://" : "http://"
        let schemeCount = scheme.utf8CodeUnitCount
        guard origins.count == 1, origin.count > schemeCount, bytes.hasPrefix(scheme, in: origin.indices) else {
            return true
        }
        let host = [UInt8](ByteRange(Int(origin.start) + schemeCount, Int(origin.end)), in: bytes)
        return !bytes.equals(authority, host)
    }

    /// Whether a Sec-Fetch-Site (W3C Fetch Metadata, section 2.3) names another site, or another origin of the same site.
    ///
    /// `none` means that a person has typed the address or chosen a bookmark.
    package static func isOtherSite(_ value: ByteRange, in bytes: Span<UInt8>) -> Bool {
        !bytes.equals(value, "same-origin") && !bytes.equals(value, "none")
    }
}

/// The methods of RFC 9110, section 9, and RFC 5789; the one list of them.
package enum Method: Int, CaseIterable, Sendable {
    case get, head, post, put, patch, delete, options, trace, connect
    /// Any other text.
    case other

    /// As it stands in a request line; nil for `other`.
    package var name: StaticString? {
        switch self {
        case .get: "GET"
        case .head: "HEAD"
        case .post: "POST"
        case .put: "PUT"
        case .patch: "PATCH"
        case .delete: "DELETE"
        case .options: "OPTIONS"
        case .trace: "TRACE"
        case .connect: "CONNECT"
        case .other: nil
        }
    }

    /// The name, or `other`, as metrics and logs show it.
    package var word: String { name.map { "\($0)" } ?? "other" }

    /// The method of a request line.
    init(_ name: ByteRange, in bytes: Span<UInt8>) {
        // The two that nearly all requests have.
        if bytes.equals(name, "GET") {
            self = .get
        } else if bytes.equals(name, "POST") {
            self = .post
        } else {
            self = Self.allCases.first { $0.name.map { bytes.equals(name, $0) } ?? false } ?? .other
        }
    }
}
