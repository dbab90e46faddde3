/// What a browser writes about the page that had it send a request; programs write none of this.
package struct PageFields: Sendable {
    private struct Signs: OptionSet {
        let rawValue: UInt8
        static let origin = Signs(rawValue: 1)
        static let secondOrigin = Signs(rawValue: 2)
        /// `Sec-Fetch-Site` names another site, or another origin of the same one.
        static let otherSite = Signs(rawValue: 4)
    }

    private var signs: Signs = []
    /// The value of `Origin`.
    private var origin = ByteRange.empty

    /// Whether there is anything to look at.
    package var isPresent: Bool { !signs.isEmpty }

    /// Takes a line of `Origin` (RFC 6454, section 7).
    mutating func addOrigin(_ value: ByteRange) {
        signs.insert(signs.contains(.origin) ? .secondOrigin : .origin)
        origin = value
    }

    /// Takes a line of `Sec-Fetch-Site` (W3C Fetch Metadata, section 2.3).
    mutating func addSite(_ value: ByteRange, of bytes: Span<UInt8>) {
        // `none`: somebody has typed the address, or chosen a bookmark.
        let isOwn = bytes.equals(value, Names.sameOrigin) || bytes.equals(value, Names.none)
        if !isOwn { signs.insert(.otherSite) }
    }

    /// Whether the page is not one of `http://` and this host with its port.
    ///
    /// `null`, which is what a page in a sandbox or a file is, is another one.
    package func isForeign(to authority: ByteRange, in bytes: Span<UInt8>) -> Bool {
        if signs.contains(.otherSite) || signs.contains(.secondOrigin) { return true }
        guard signs.contains(.origin) else { return false }
        let scheme = Names.scheme.utf8CodeUnitCount
        guard origin.count > scheme, bytes.hasPrefix(Names.scheme, in: origin.indices) else { return true }
        let host = [UInt8](ByteRange(Int(origin.start) + scheme, Int(origin.end)), in: bytes)
        return !bytes.equals(authority, host)
    }

    func moved(by distance: Int) -> PageFields {
        var moved = self
        moved.origin = origin.moved(by: distance)
        return moved
    }

    private enum Names {
        static let scheme: StaticString = "http://"
        static let sameOrigin: StaticString = "same-origin"
        static let none: StaticString = "none"
    }
}
