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

    /// The `datedHash` of a token that an API or the provider has refused.
    var refused: String?

    /// A write without its token.
    struct Write: Sendable, Hashable, Codable {
        /// Tells this write from all others.
        var id = UUID().uuidString
        /// The logins that this device knew of, which a sign-out ends, however often their tokens were refreshed elsewhere.
        var logins: Set<String> = []
        /// Sends a sign-out when the user's own cache is gone.
        var credential: Credential?
        /// Hashes of what this write replaces on the server, whatever its version: the last hundred.
        ///
        /// They are those of tokens that this device has written before and that the server may have, although no answer has said
        /// so; of the token that a refresh has used up; and of the text that the write is based on, to which another device may
        /// have added a lease.
        var replaced: [String] = []
    }

    init(_ information: TokenInformation?, base: TokenBase = .anything, write: Write? = nil) {
        (self.information, text) = (information, information?.text)
        (self.base, self.write) = (base, write)
    }

    /// Whether both have the same contents.
    func isSame(as other: LocalRecord?) -> Bool {
        guard let other else { return false }
        return text == other.text && base == other.base && write == other.write && refused == other.refused
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
        var refused: String?
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
        (record.text, record.refused) = (item.text, item.refused)
        if let text = item.text { record.information = try TokenInformation(text: text) }
        return (item.user, record)
    }

    func data(of user: String) -> Data {
        Data(JSON.text(Item(user: user, text: text, base: base, write: write, refused: refused)).utf8)
    }
}

extension LocalRecord.Write {
    /// A write that replaces what a record holds.
    ///
    /// - Parameter information: The token that is written, if it continues the login of the record's token.
    init(
        id: String = UUID().uuidString, credential: Credential? = nil, after record: LocalRecord?,
        continuedBy information: TokenInformation? = nil
    ) {
        self = record?.write ?? LocalRecord.Write()
        (self.id, self.credential) = (id, credential)
        if let login = record?.information?.loginID { logins.insert(login) }
        guard let old = record?.information else { return }
        if record?.write != nil || information.map({ $0.token != old.token }) == true {
            replaced.append(SHA256.hexadecimal(old.token))
        }
        replaced = (replaced + [SHA256.hexadecimal(old.text)]).suffix(100)
    }
}
