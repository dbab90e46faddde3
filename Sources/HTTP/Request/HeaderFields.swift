/// What the header fields of a request say: everything that is kept of them.
///
/// A client that keeps its connection sends the same fields with each request, and what the first ones said is taken over
/// with `moved(by:)`. So that nothing is lost there, no property has a default value: a new one is a compile error in
/// `moved(by:)` and `init()`.
package struct HeaderFields: Sendable {
    /// Fields of which a request has at most one.
    struct Singles: OptionSet {
        let rawValue: UInt8
        static let host = Singles(rawValue: 1)
        static let contentLength = Singles(rawValue: 2)
        static let transferEncoding = Singles(rawValue: 4)
        static let contentType = Singles(rawValue: 8)
    }

    /// Those of them that were there.
    var singles: Singles
    /// Lines, whatever their names.
    var count: Int
    /// The value of Host; empty if there is none.
    var host: ByteRange
    /// 0 if there is none.
    var contentLength: Int
    /// The value of Content-Type; empty if there is none.
    fileprivate var contentTypeOrEmpty: ByteRange
    /// Whether Connection says so.
    var saysClose: Bool
    var saysKeepAlive: Bool
    /// `Expect: 100-continue`.
    var expectsContinue: Bool
    /// Authorization.
    package internal(set) var authorization: FieldLines
    /// Whether there is an If-Match or If-None-Match, which are then looked up; see `Preconditions`.
    package internal(set) var hasPreconditions: Bool
    /// What proxies wrote about the request's way; to be believed or not.
    package internal(set) var forwarding: Forwarding
    /// Whether there is an Origin, or a Sec-Fetch-Site that names another site than this one.
    package internal(set) var mentionsPage: Bool
    /// Whether the request's authority has a name that anybody's DNS could point here, as `Span.hasForeignName` says.
    ///
    /// Not checked if `forwarding` is present.
    package internal(set) var hasForeignName: Bool

    /// Nil if there is no Content-Type.
    package internal(set) var contentType: ByteRange? {
        get { singles.contains(.contentType) ? contentTypeOrEmpty : nil }
        set { contentTypeOrEmpty = newValue ?? .empty }
    }
}

extension HeaderFields {
    /// Of no line.
    init() {
        self.init(
            singles: [], count: 0, host: .empty, contentLength: 0, contentTypeOrEmpty: .empty, saysClose: false,
            saysKeepAlive: false, expectsContinue: false, authorization: FieldLines(), hasPreconditions: false,
            forwarding: Forwarding(), mentionsPage: false, hasForeignName: false
        )
    }

    /// What the same lines say in a request in which they lie so much further from its first byte.
    func moved(by distance: Int) -> HeaderFields {
        HeaderFields(
            singles: singles, count: count, host: host.moved(by: distance), contentLength: contentLength,
            contentTypeOrEmpty: contentTypeOrEmpty.moved(by: distance), saysClose: saysClose,
            saysKeepAlive: saysKeepAlive, expectsContinue: expectsContinue,
            authorization: authorization.moved(by: distance), hasPreconditions: hasPreconditions,
            forwarding: forwarding.moved(by: distance), mentionsPage: mentionsPage, hasForeignName: hasForeignName
        )
    }
}
