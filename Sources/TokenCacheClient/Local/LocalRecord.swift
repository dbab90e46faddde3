internal import Foundation

/// What a device knows of one user's token, and what it has to tell the server: one item, which changes as a whole.
///
/// As JSON: `{"format":1,"user":"...","token_info":"...","base":...,"write":{...},"refreshing_until":"..."}`, of which all but
/// the first two may be missing. Without an item nothing is known; an item without a token says that there is none.
struct LocalRecord: Sendable {
    /// The token; nil: there is surely none.
    private(set) var information: TokenInformation?
    /// The token as it was written, by which two records are compared: information without a date gets one when it is read.
    private var text: String?
    /// The last state of the server that is known.
    var base = TokenBase.anything
    /// The last write of this device, if the server does not have it: the token, or that there is none.
    var write: Write?
    /// Until when others leave refreshing the token to one of those who share it.
    var refreshingUntil: Date?

    /// What is to be known of a write besides its token.
    struct Write: Sendable, Hashable {
        /// Tells this write from all others.
        var id = UUID().uuidString
        /// The logins that this device knew of, which a sign-out ends, however often their tokens were refreshed elsewhere.
        var logins: Set<String> = []
        /// By what a sign-out can be sent when the user's own cache is gone.
        var credential: Credential?
    }

    init(_ information: TokenInformation?, base: TokenBase = .anything, write: Write? = nil) {
        (self.information, text) = (information, information?.text)
        (self.base, self.write) = (base, write)
    }

    /// Whether both say the same of the token and of what is to be sent.
    func isSame(as other: LocalRecord?) -> Bool {
        guard let other else { return false }
        return text == other.text && base == other.base && write == other.write
    }

    // MARK: - Bytes

    private static let format = 1

    /// Reads an item.
    ///
    /// - Throws: `.unreadable` if it is damaged, `.laterFormat`.
    init(_ data: Data) throws(TokenCacheError) {
        let members = try Self.members(data)
        if let text = members["token_info"]?.string {
            self.text = text
            information = try TokenInformation(text: text)
        }
        base = Self.base(members["base"])
        refreshingUntil = members["refreshing_until"]?.string.flatMap(TokenDate.parse)
        guard case .object(let write)? = members["write"] else { return }
        guard let id = write["id"]?.string, case .array(let logins)? = write["logins"] else {
            throw .unreadable("the local item's write is damaged")
        }
        self.write = Write(id: id, logins: Set(logins.compactMap(\.string)), credential: Self.credential(write))
    }

    /// Whose an item is.
    static func user(of data: Data) throws(TokenCacheError) -> String {
        guard let user = try members(data)["user"]?.string else { throw .unreadable("the local item is nobody's") }
        return user
    }

    func data(of user: String) -> Data {
        var members: [String: TokenInformation.Value] = ["format": .number(String(Self.format)), "user": .string(user)]
        members["token_info"] = text.map(TokenInformation.Value.string)
        members["refreshing_until"] = refreshingUntil.map { .string(TokenDate.text($0)) }
        switch base {
        case .anything: break
        case .nothing: members["base"] = .bool(false)
        case .version(let tag): members["base"] = .object(["tag": .string(tag)])
        case .content(let hash): members["base"] = .object(["content": .string(hash)])
        }
        if let write {
            var values: [String: TokenInformation.Value] = [
                "id": .string(write.id), "logins": .array(write.logins.sorted().map(TokenInformation.Value.string)),
            ]
            if let credential = write.credential {
                values[credential.isSession ? "session" : "unique_id"] = .string(credential.text)
            }
            members["write"] = .object(values)
        }
        return Data(JSONWriter.text(.object(members)).utf8)
    }

    private static func members(_ data: Data) throws(TokenCacheError) -> [String: TokenInformation.Value] {
        guard let value = try? JSONReader.value(data), case .object(let members) = value,
            case .number(let number)? = members["format"], let format = Int(number)
        else { throw .unreadable("the local item is damaged") }
        guard format <= Self.format else { throw .laterFormat(found: format) }
        return members
    }

    private static func base(_ value: TokenInformation.Value?) -> TokenBase {
        if value == .bool(false) { return .nothing }
        guard case .object(let members)? = value else { return .anything }
        if let tag = members["tag"]?.string { return .version(tag) }
        return members["content"]?.string.map(TokenBase.content) ?? .anything
    }

    private static func credential(_ write: [String: TokenInformation.Value]) -> Credential? {
        if let session = write["session"]?.string { return Credential(isSession: true, text: session) }
        return write["unique_id"]?.string.map { Credential(isSession: false, text: $0) }
    }
}
