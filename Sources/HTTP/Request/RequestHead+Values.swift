/// Values of fields that are looked up when they are asked for, as few requests have them.
extension RequestHead {
    /// The values of all lines of a field, in order.
    ///
    /// Searches the whole head: for requests that are rare.
    package func values(of field: HeaderField, in bytes: Span<UInt8>) -> [ByteRange] {
        values(in: bytes) { bytes.equalsIgnoringCase($0, field.name) }
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
    /// `null`, the origin of a page in a sandbox or of a file, is another one. Programs say nothing of pages.
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
    /// `none`: a person has typed the address, or chosen a bookmark.
    package static func isOtherSite(_ value: ByteRange, in bytes: Span<UInt8>) -> Bool {
        !bytes.equals(value, "same-origin") && !bytes.equals(value, "none")
    }
}
