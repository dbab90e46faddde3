internal import Foundation

/// The last write that has not reached the server, in a private file.
///
/// There is never more than one: a later write replaces an earlier one.
struct WriteQueue {
    /// A write that waits.
    struct Write: Sendable {
        /// Tells this write from all others.
        var id = UUID().uuidString
        /// The token; nil clears.
        var information: TokenInformation?
        /// What the write was to replace, as far as it was known then.
        var base: TokenBase
        var madeAt: Date

        /// Whether what is on the server is newer than this write, by the times that the devices say.
        ///
        /// Tokens are compared by when they were obtained; a sign-out happened when it was made.
        func isOlder(than current: TokenInformation) -> Bool {
            let time = information.map { $0.refreshDate ?? .distantPast } ?? madeAt
            return (current.refreshDate ?? .distantPast) > time
        }
    }

    /// A write with the bytes it was read from, by which it is removed.
    struct Entry: Sendable {
        let write: Write
        let data: Data
    }

    let file: PrivateFile

    private static let format = 1

    /// The write that waits; nil if none does.
    func read() throws(TokenCacheError) -> Entry? {
        guard let data = try file.read() else { return nil }
        guard let value = try? JSONReader.value(data), case .object(let members) = value,
            case .number(let number)? = members["format"], let format = Int(number)
        else { throw .unreadable("the queue is damaged") }
        guard format <= Self.format else { throw .laterFormat(found: format) }
        guard let id = members["id"]?.string, let text = members["token_info"]?.string,
            let madeAt = members["made_at"]?.string.flatMap(TokenDate.parse)
        else { throw .unreadable("the queue is damaged") }
        let base: TokenBase =
            switch members["base"] {
            case .string(let tag)?: .version(tag)
            case .bool(false)?: .nothing
            default: .anything
            }
        let information = try TokenInformation(text: text)
        return Entry(write: Write(id: id, information: information, base: base, madeAt: madeAt), data: data)
    }

    /// Puts a write in place of the one that waits.
    func write(_ write: Write) throws(TokenCacheError) {
        let base: TokenInformation.Value =
            switch write.base {
            case .version(let tag): .string(tag)
            case .nothing: .bool(false)
            case .anything: .null
            }
        let members: [String: TokenInformation.Value] = [
            "format": .number(String(Self.format)), "id": .string(write.id), "base": base,
            "token_info": .string(write.information?.text ?? TokenInformation.noneText),
            "made_at": .string(TokenDate.text(write.madeAt)),
        ]
        try file.write(Data(JSONWriter.text(.object(members)).utf8))
    }

    /// Removes a write that has been sent; false if another one has taken its place, maybe of another process.
    func remove(_ entry: Entry) throws(TokenCacheError) -> Bool {
        try file.remove(ifStill: entry.data)
    }
}
