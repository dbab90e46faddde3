/// The preconditions of a request (RFC 9110, section 13.1): which version of the resource it is meant for.
package struct Preconditions: Hashable, Sendable {
    /// If-Match; nil if there is none.
    package var match: EntityTags?
    /// If-None-Match; nil if there is none.
    package var noneMatch: EntityTags?

    package init(match: EntityTags? = nil, noneMatch: EntityTags? = nil) {
        self.match = match
        self.noneMatch = noneMatch
    }

    /// How many entity tags a list may have: they are kept while a request waits.
    package static let tagLimit = 32

    /// A header that is not `*` or a list of entity tags.
    package struct Malformed: Error {}

    /// Reads the preconditions of a request; several lines of a field form one list.
    package init(of head: RequestHead, in bytes: Span<UInt8>) throws(Malformed) {
        guard head.fields.hasPreconditions else { return }
        match = try Self.tags(.ifMatch, of: head, in: bytes)
        noneMatch = try Self.tags(.ifNoneMatch, of: head, in: bytes)
    }

    private static func tags(
        _ field: HeaderField, of head: RequestHead, in bytes: Span<UInt8>
    ) throws(Malformed) -> EntityTags? {
        let lines = head.values(of: field, in: bytes)
        guard !lines.isEmpty else { return nil }
        if lines.count == 1, bytes.equals(lines[0], "*") { return .any }
        var tags: [EntityTag] = []
        for line in lines {
            guard EntityTag.appendList(line, of: bytes, to: &tags) else { throw Malformed() }
        }
        guard !tags.isEmpty else { throw Malformed() }
        return .tags(tags)
    }
}

/// The value of If-Match or If-None-Match.
package enum EntityTags: Hashable, Sendable {
    /// `*`: any version, as long as there is one.
    case any
    case tags([EntityTag])
}

/// An entity tag (RFC 9110, section 8.8.3).
package struct EntityTag: Hashable, Sendable {
    /// `W/`: stands for versions that mean the same, perhaps in other bytes.
    package let isWeak: Bool
    /// What stands between the quotation marks.
    let opaque: [UInt8]

    package init(isWeak: Bool = false, opaque: [UInt8]) {
        self.isWeak = isWeak
        self.opaque = opaque
    }

    /// The number that `ResponseEncoder` has written as this tag; nil for any other tag.
    package var number: Int64? {
        guard let number = Int64(String(decoding: opaque, as: UTF8.self), radix: 16) else { return nil }
        return number >= 0 && String(number, radix: 16).utf8.elementsEqual(opaque) ? number : nil
    }

    /// Appends the tags of a comma-separated list, of which elements may be empty (RFC 9110, section 5.6.1).
    ///
    /// - Returns: False if it is no such list, or one of too many.
    static func appendList(_ range: ByteRange, of bytes: Span<UInt8>, to tags: inout [EntityTag]) -> Bool {
        var position = Int(range.start)
        let end = Int(range.end)
        while true {
            while position < end, [.space, .tab, UInt8(ascii: ",")].contains(bytes[position]) { position += 1 }
            guard position < end else { return true }
            let isWeak =
                position + 1 < end && bytes[position] == UInt8(ascii: "W")
                && bytes[position + 1] == UInt8(ascii: "/")
            if isWeak { position += 2 }
            guard tags.count < Preconditions.tagLimit, position < end, bytes[position] == UInt8(ascii: "\""),
                let close = bytes.firstIndex(of: UInt8(ascii: "\""), in: (position + 1)..<end)
            else { return false }
            // A quotation mark cannot be part of a tag; a comma and a blank can be part of some servers' tags.
            tags.append(EntityTag(isWeak: isWeak, opaque: [UInt8](ByteRange(position + 1, close), in: bytes)))
            position = close + 1
            while position < end, bytes[position] == .space || bytes[position] == .tab { position += 1 }
            guard position == end || bytes[position] == UInt8(ascii: ",") else { return false }
        }
    }
}
