import Foundation

/// What a device knows about one user's token, and the write that waits for the server: one item, which changes as a whole.
///
/// Without an item nothing is known; an item without a token says that there is none.
struct LocalRecord: Sendable {
    /// The token; nil if there is surely none.
    private(set) var information: TokenInformation?
    /// The token as it was written, to compare two records: information without a date gets one when it is read.
    private var text: String?
    /// The last state of the server that is known.
    var base = TokenBase.anything
    /// The last write of this device, if the server does not have it: the token, or that there is none.
    var write: Write?
    /// Until when one of the sessions that share the item refreshes the token, and the others wait.
    var refreshingUntil: Date?

    /// A write without its token.
    struct Write: Sendable, Hashable, Codable {
        /// Tells this write from all others.
        var id = UUID().uuidString
        /// The logins that this device knew of, which a sign-out ends, however often their tokens were refreshed elsewhere.
        var logins: Set<String> = []
        /// Sends a sign-out when the user's own cache is gone.
        var credential: Credential?
        /// Hashes of tokens that this device has written before this write and that the server may have, although no answer has
        /// said so: the last hundred.
        var replaced: [String] = []
    }

    init(_ information: TokenInformation?, base: TokenBase = .anything, write: Write? = nil) {
        (self.information, text) = (information, information?.text)
        (self.base, self.write) = (base, write)
    }

    /// Whether both have the same token, state of the server and write.
    func isSame(as other: LocalRecord?) -> Bool {
        guard let other else { return false }
        return text == other.text && base == other.base && write == other.write
    }

    /// Why a token that continues a login may not replace this: the login was ended or replaced, by another process or elsewhere.
    ///
    /// The server would accept the token, because it replaces the version that this device knows: the sign-out.
    func refusal(of new: TokenInformation) -> TokenCacheError? {
        guard let information else { return .conflict(current: nil) }
        let isOther = information.loginID != new.loginID && information.loginID != nil && new.loginID != nil
        return isOther ? .conflict(current: information) : nil
    }

    // MARK: - Bytes

    /// An item, as JSON.
    private struct Item: Codable {
        var format = LocalRecord.format
        var user: String
        var text: String?
        var base: TokenBase
        var write: Write?
        var refreshingUntil: Date?
    }

    private struct Format: Decodable {
        let format: Int
    }

    private static let format = 1

    /// Reads an item.
    ///
    /// - Throws: `.unreadable` if it is damaged, `.laterFormat`.
    static func read(_ data: Data) throws(TokenCacheError) -> (user: String, record: LocalRecord) {
        if let found = try? JSON.value(Format.self, data).format, found > format { throw .laterFormat(found: found) }
        guard let item = try? JSON.value(Item.self, data) else { throw .unreadable("the local item is damaged") }
        var record = LocalRecord(nil, base: item.base, write: item.write)
        (record.text, record.refreshingUntil) = (item.text, item.refreshingUntil)
        if let text = item.text { record.information = try TokenInformation(text: text) }
        return (item.user, record)
    }

    func data(of user: String) -> Data {
        let item = Item(user: user, text: text, base: base, write: write, refreshingUntil: refreshingUntil)
        return Data(JSON.text(item).utf8)
    }
}

extension LocalRecord.Write {
    /// A write in the place of what a record holds.
    init(id: String = UUID().uuidString, credential: Credential? = nil, after record: LocalRecord?) {
        self = record?.write ?? LocalRecord.Write()
        (self.id, self.credential) = (id, credential)
        if let login = record?.information?.loginID { logins.insert(login) }
        if record?.write != nil, let token = record?.information?.token {
            replaced = (replaced + [SHA256.hexadecimal(token)]).suffix(100)
        }
    }
}
