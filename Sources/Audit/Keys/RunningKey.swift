package import Cryptography
internal import Glibc
internal import System

/// The end of a chain: what the next line follows.
struct ChainHead: Hashable, Sendable {
    /// Of the last line; 0 before the first.
    var sequence: UInt64
    /// Of the last line; zeros before the first.
    var mac: [UInt8]

    static let macLength = KeyedHash.length
    static let start = ChainHead(sequence: 0, mac: [UInt8](repeating: 0, count: macLength))
}

/// What the server keeps on its disk to continue the chain: the present period's key, and nothing that leads to an earlier
/// one.
package struct RunningKey: Sendable {
    /// The name of the file in the data folder.
    package static let standardName = "audit-key"

    let chain: String
    let pseudonymKey: SecretKey
    var chainKey: ChainKey
    /// When the period began, in seconds since 1970.
    var periodStart: Int64
    /// The chain's end when the period began.
    var head: ChainHead

    /// The key of a chain that begins.
    package init(_ first: AuditFirstKey, at unixTime: Int64) throws(CryptographyError) {
        chain = try first.chainName()
        pseudonymKey = try first.pseudonymKey()
        chainKey = try first.chainKey()
        periodStart = unixTime
        head = .start
    }

    /// The path of the file with the chain's end, see `HeadFile`.
    static func headPath(beside path: String) -> String { path + ".head" }

    private static func removeHead(beside path: String) {
        _ = unsafe unlink(headPath(beside: path))
    }

    private static let heading = """
        # The running key of token-cache's audit log, which the server replaces every 15 minutes. It verifies nothing:
        # for that there is the first key. A copy of this file is of no use.

        """

    /// Nil if there is no such file.
    init?(contentsOf path: String) throws(AuditError) {
        guard var lines = try KeyFile.lines(of: path) else { return nil }
        defer { for index in lines.indices { SecretKey.wipe(&lines[index]) } }
        let words = lines.map { $0.split(separator: UInt8(ascii: " ")) }
        func number(_ text: ArraySlice<UInt8>) -> Int64? {
            Int64(String(decoding: text, as: UTF8.self)).flatMap { $0 < 0 ? nil : $0 }
        }
        guard words.map(\.count) == [2, 2, 4, 3],
            zip(words, ["chain", "pseudonyms", "period", "head"]).allSatisfy({ $0[0].elementsEqual($1.utf8) }),
            let pseudonymKey = KeyFile.key(words[1][1]), let period = number(words[2][1]),
            let start = number(words[2][2]), let key = KeyFile.key(words[2][3]), let sequence = number(words[3][1]),
            let mac = Base64URL.decode(Array(words[3][2]).span), mac.count == ChainHead.macLength
        else {
            throw .keyFile(path: path, reason: "it is not as the server writes it")
        }
        chain = String(decoding: words[0][1], as: UTF8.self)
        self.pseudonymKey = pseudonymKey
        chainKey = ChainKey(period: UInt64(period), key: key)
        periodStart = start
        head = ChainHead(sequence: UInt64(sequence), mac: mac)
    }

    /// Writes a file that must not exist.
    package func create(_ path: String) throws(AuditError) {
        var text = bytes
        defer { SecretKey.wipe(&text) }
        try KeyFile.create(path, text)
    }

    /// Puts the key of a new chain in the place of a former one, if there is one, and forgets where that ended.
    package func install(_ path: String) throws(AuditError) {
        guard FileStatus.exists(path) else { return try create(path) }
        // First: the end of another chain would be taken for this one's.
        Self.removeHead(beside: path)
        try save(path)
    }

    /// Replaces the file.
    package func save(_ path: String) throws(AuditError) {
        var text = bytes
        defer { SecretKey.wipe(&text) }
        try KeyFile.replace(path, text)
    }

    /// The text; the caller wipes it.
    private var bytes: [UInt8] {
        var text: [UInt8] = []
        // Enough, so that growing leaves no copies in memory.
        text.reserveCapacity(1024)
        text += Self.heading.utf8
        text += "chain \(chain)\npseudonyms ".utf8
        pseudonymKey.withBytes { Base64URL.append($0, to: &text) }
        text += "\nperiod \(chainKey.period) \(periodStart) ".utf8
        chainKey.key.withBytes { Base64URL.append($0, to: &text) }
        text += "\nhead \(head.sequence) ".utf8
        Base64URL.append(head.mac.span, to: &text)
        text.append(UInt8(ascii: "\n"))
        return text
    }
}
