import Audit
import HTTP
import TokenStore

/// What a path below `/v1` names.
///
/// The user is a segment of the path, or in the query of a path that begins with `/v1/user`. The query is for users that a path
/// cannot carry: some proxies decode `%2F` in it, and nearly all resolve `.` and `..`, so that the request would be about another
/// user or do something else.
enum APIResource: Hashable {
    /// `/v1/sessions`
    case sessions
    /// `/v1/sessions/{id}`; nil if no session can have this id.
    case session(SessionID?)
    /// `/v1/users/{user}` or `/v1/user?user=...`; the others likewise.
    case user([UInt8])
    /// `/v1/users/{user}/sessions`
    case sessionsOfUser([UInt8])
    /// `/v1/users/{user}/token`
    case token([UInt8])

    /// Why a path names no resource.
    enum Fault: Error {
        case unknown
        /// The user is not UTF-8, is too long, would be stored differently, or has to be in the query and not in the path.
        case user
    }

    /// The prefix of all paths of the API.
    static let prefix: StaticString = "/v1/"

    /// Whether a path belongs to the API.
    static func contains(_ path: ByteRange, in bytes: Span<UInt8>) -> Bool {
        path.count >= 4 && bytes.equals(ByteRange(Int(path.start), Int(path.start) + 4), prefix)
    }

    /// - Parameter head: The head of a request for whose path `contains` is true.
    init(_ head: RequestHead, in bytes: Span<UInt8>) throws(Fault) {
        let path = head.path
        let segments = Self.segments(of: ByteRange(Int(path.start) + 4, Int(path.end)), in: bytes)
        guard let first = segments.first, segments.count <= 3 else { throw .unknown }
        if bytes.equals(first, "sessions") {
            switch segments.count {
            case 1: self = .sessions
            case 2: self = .session(SessionID(bytes.text(segments[1])))
            default: throw .unknown
            }
        } else if bytes.equals(first, "users"), segments.count > 1 {
            try self.init(segments.dropFirst(2), of: try Self.user(segments[1], in: bytes), in: bytes)
        } else if bytes.equals(first, "user"), segments.count < 3 {
            try self.init(segments.dropFirst(), of: try Self.user(inQuery: head.query, in: bytes), in: bytes)
        } else {
            throw .unknown
        }
    }

    /// - Parameter rest: The segments of the path after the user.
    private init(_ rest: ArraySlice<ByteRange>, of user: [UInt8], in bytes: Span<UInt8>) throws(Fault) {
        guard let name = rest.first else {
            self = .user(user)
            return
        }
        if bytes.equals(name, "sessions") {
            self = .sessionsOfUser(user)
        } else if bytes.equals(name, "token") {
            self = .token(user)
        } else {
            throw .unknown
        }
    }

    private static func segments(of path: ByteRange, in bytes: Span<UInt8>) -> [ByteRange] {
        var segments: [ByteRange] = []
        var start = Int(path.start)
        // A fourth segment is enough to see that there are too many.
        while segments.count < 4 {
            let end = bytes.firstIndex(of: UInt8(ascii: "/"), in: start..<Int(path.end)) ?? Int(path.end)
            segments.append(ByteRange(start, end))
            if end == Int(path.end) { break }
            start = end + 1
        }
        return segments
    }

    /// The user in a segment, without its escapes (RFC 3986, section 2.1).
    private static func user(_ segment: ByteRange, in bytes: Span<UInt8>) throws(Fault) -> [UInt8] {
        var user: [UInt8] = []
        var index = Int(segment.start)
        while index < Int(segment.end) {
            if bytes[index] == UInt8(ascii: "%") {
                guard index + 2 < Int(segment.end), let high = ByteClass.hexValue(bytes[index + 1]),
                    let low = ByteClass.hexValue(bytes[index + 2])
                else { throw .user }
                user.append(high << 4 | low)
                index += 3
            } else {
                user.append(bytes[index])
                index += 1
            }
        }
        if user.contains(UInt8(ascii: "/")) || user == [0x2e] || user == [0x2e, 0x2e] { throw .user }
        return try checked(user)
    }

    /// The parameter `user` of a query; of several, the last counts.
    private static func user(inQuery query: ByteRange, in bytes: Span<UInt8>) throws(Fault) -> [UInt8] {
        var value: ByteRange?
        URLEncodedForm.forEachPair(in: query, of: bytes, from: .query) { name, found in
            if URLEncodedForm.role(of: name, in: bytes, for: "user") == .parameter { value = found }
        }
        return try checked(value.map { URLEncodedForm.decoded($0, of: bytes) } ?? [])
    }

    /// Returns a user that would be stored as it is; refuses any other.
    static func checked(_ user: [UInt8]) throws(Fault) -> [UInt8] {
        guard UniqueID(user) == .text(user) else { throw .user }
        return user
    }

    // MARK: - Methods

    /// What a method does with the resource, and the scope that this needs; nil if the resource has no such method.
    func action(_ method: Method) -> (AuditEvent.Action, APIScope)? {
        switch (self, method) {
        case (.sessions, .post): (.createSession, .sessions)
        case (.session, .delete): (.endSession, .sessions)
        case (.sessionsOfUser, .get), (.sessionsOfUser, .head): (.listSessions, .sessions)
        case (.sessionsOfUser, .delete): (.endSessions, .sessions)
        case (.token, .get), (.token, .head): (.read, .tokensRead)
        case (.token, .put): (.store, .tokensWrite)
        case (.token, .delete): (.remove, .tokensWrite)
        case (.user, .delete): (.erase, .erase)
        default: nil
        }
    }

    /// The resource's methods, for `Allow`.
    var methods: String {
        Method.allCases.filter { action($0) != nil }.compactMap { $0.name.map(String.init(describing:)) }
            .joined(separator: ", ")
    }
}
