/// What the header fields of a request say: everything that is kept of them.
package struct HeaderFields: Sendable {
    /// Fields of which a request has at most one.
    struct Singles: OptionSet {
        let rawValue: UInt8
        static let host = Singles(rawValue: 1)
        static let contentLength = Singles(rawValue: 2)
        static let transferEncoding = Singles(rawValue: 4)
        static let contentType = Singles(rawValue: 8)
    }

    /// Which of them the request has.
    var singles: Singles = []
    /// The number of lines, whatever their names.
    var count = 0
    /// The value of Host; empty if there is none.
    var host = ByteRange.empty
    /// 0 if there is none.
    var contentLength = 0
    /// The value of Content-Type; nil if there is none.
    package internal(set) var contentType: ByteRange?
    /// Whether Connection contains `close`.
    var saysClose = false
    var saysKeepAlive = false
    /// `Expect: 100-continue`.
    var expectsContinue = false
    /// Authorization.
    package internal(set) var authorization = FieldLines()
    /// Whether there is an If-Match or If-None-Match, which are then looked up; see `Preconditions`.
    package internal(set) var hasPreconditions = false
    /// What proxies wrote about the request's way here, which any client can forge.
    package internal(set) var forwarding = Forwarding()
    /// Whether there is an Origin, or a Sec-Fetch-Site that names another site than this one.
    package internal(set) var mentionsPage = false
    /// Whether the request's authority has a name that a stranger's DNS could point here, as `Span.hasForeignName` says.
    package internal(set) var hasForeignName = false
}

/// The header fields that are read; all others are passed over.
///
/// The one list of them. To read another field, add a case: the compiler then asks for its name here and for its meaning in
/// `HeadParser.readField`, and a test asks for its place in `init`.
package enum HeaderField: CaseIterable, Sendable {
    case host, connection, expect
    case contentLength, contentType, transferEncoding
    /// The client's credential (RFC 9110, section 11.6.2).
    case authorization
    /// Preconditions (RFC 9110, section 13.1).
    case ifMatch, ifNoneMatch
    /// What browsers say about the page that caused the request.
    case origin, fetchSite
    /// What proxies say about the way that the request took.
    case forwarded, forwardedFor, forwardedProto, realAddress, via
    /// Any other field whose name begins with `X-Forwarded-`.
    case otherForwarded
    case requestID

    /// In lower case; for `otherForwarded`, how the name begins.
    package var name: StaticString {
        switch self {
        case .host: "host"
        case .connection: "connection"
        case .expect: "expect"
        case .contentLength: "content-length"
        case .contentType: "content-type"
        case .transferEncoding: "transfer-encoding"
        case .authorization: "authorization"
        case .ifMatch: "if-match"
        case .ifNoneMatch: "if-none-match"
        case .origin: "origin"
        case .fetchSite: "sec-fetch-site"
        case .forwarded: "forwarded"
        case .forwardedFor: "x-forwarded-for"
        case .forwardedProto: "x-forwarded-proto"
        case .realAddress: "x-real-ip"
        case .via: "via"
        case .otherForwarded: "x-forwarded-"
        case .requestID: "x-request-id"
        }
    }

    /// The field of a name; nil if it is not read.
    ///
    /// Compares the lengths first, in which most names differ.
    @inline(__always)
    init?(_ name: ByteRange, in bytes: Span<UInt8>) {
        switch name.count {
        case 3 where Self.via.isNamed(name, bytes): self = .via
        case 4 where Self.host.isNamed(name, bytes): self = .host
        case 6 where Self.expect.isNamed(name, bytes): self = .expect
        case 6 where Self.origin.isNamed(name, bytes): self = .origin
        case 8 where Self.ifMatch.isNamed(name, bytes): self = .ifMatch
        case 9 where Self.forwarded.isNamed(name, bytes): self = .forwarded
        case 9 where Self.realAddress.isNamed(name, bytes): self = .realAddress
        case 10 where Self.connection.isNamed(name, bytes): self = .connection
        case 12 where Self.contentType.isNamed(name, bytes): self = .contentType
        case 12 where Self.requestID.isNamed(name, bytes): self = .requestID
        case 13 where Self.authorization.isNamed(name, bytes): self = .authorization
        case 13 where Self.ifNoneMatch.isNamed(name, bytes): self = .ifNoneMatch
        case 14 where Self.contentLength.isNamed(name, bytes): self = .contentLength
        case 14 where Self.fetchSite.isNamed(name, bytes): self = .fetchSite
        case 15 where Self.forwardedFor.isNamed(name, bytes): self = .forwardedFor
        case 17 where Self.forwardedProto.isNamed(name, bytes): self = .forwardedProto
        case 17 where Self.transferEncoding.isNamed(name, bytes): self = .transferEncoding
        case 12... where bytes.hasPrefix(Self.otherForwarded.name, in: name.indices): self = .otherForwarded
        default: return nil
        }
    }

    @inline(__always)
    private func isNamed(_ name: ByteRange, _ bytes: Span<UInt8>) -> Bool { bytes.equalsIgnoringCase(name, self.name) }
}

/// The lines of one field in a head, which may have several of them (RFC 9110, section 5.3).
///
/// A proxy that adds a line of its own keeps the client's. As there is nearly always only one line, only the first is kept; the
/// head is searched for further ones when they are needed.
package struct FieldLines: Hashable, Sendable {
    private enum Count {
        case none, one, several
    }

    private var count = Count.none
    private var first = ByteRange.empty

    /// Whether there is no line.
    package var isEmpty: Bool { count == .none }

    /// The value of the only line; nil if there is none, or several.
    package var only: ByteRange? { count == .one ? first : nil }

    mutating func add(_ value: ByteRange) {
        (count, first) = count == .none ? (.one, value) : (.several, first)
    }
}

/// The headers that proxies add, as received.
package struct Forwarding: Sendable {
    /// Whether there is any of X-Forwarded-*, Forwarded (RFC 7239), X-Real-IP and Via (RFC 9110, section 7.6.3); the values of others
    /// than the two below are not read.
    package internal(set) var isPresent = false
    /// X-Forwarded-Proto.
    var protos = FieldLines()
    /// X-Forwarded-For.
    var addresses = FieldLines()
    /// The last X-Request-Id; empty if there is none.
    ///
    /// Says nothing about the request's way.
    package internal(set) var requestID = ByteRange.empty
}
