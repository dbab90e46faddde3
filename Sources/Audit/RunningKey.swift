package import Cryptography
import Glibc
import System

/// The end of a chain: what the next line follows.
struct ChainEnd: Hashable, Sendable {
    /// The number of the last line; 0 before the first.
    var sequence: UInt64
    /// The MAC of the last line; zeros before the first.
    var mac: [UInt8]
    /// The period of the line that follows.
    var period: UInt64

    static let macLength = KeyedHash.length
    static let start = ChainEnd(sequence: 0, mac: [UInt8](repeating: 0, count: macLength), period: 0)

    /// Whether a chain can have this end: larger numbers are damage, and counting on from them could overflow.
    ///
    /// At a period every 15 minutes, the periods last for more than a hundred years. So whatever a log claims, verifying it makes
    /// no more keys than that, which takes some ten seconds.
    var isPossible: Bool { sequence < 1 << 62 && period < 4_000_000 }
}

/// What the server keeps on its disk to continue the chain: the current period's key, and nothing that leads to an earlier
/// one.
package struct RunningKey: Sendable {
    /// The name of the file in the data folder.
    package static let standardName = "audit-key"

    let chain: String
    let pseudonymKey: SecretKey
    var chainKey: ChainKey
    /// When the period began, in seconds since 1970.
    var periodStart: Int64
    /// The chain's end when the period or the present file began.
    var end: ChainEnd

    /// The running key of a new chain.
    package init(_ first: AuditFirstKey, at unixTime: Int64) {
        chain = first.chainName()
        pseudonymKey = first.pseudonymKey()
        chainKey = first.chainKey()
        periodStart = unixTime
        end = .start
    }

    /// The path of the file with the chain's end, see `HeadFile`.
    package static func headPath(beside path: String) -> String { path + ".head" }

    private static let heading = """
        # The running key of token-cache's audit log, which the server replaces every 15 minutes. It does not
        # verify the log; the first key does. A copy of this file is of no use.

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
            let mac = Base64URL.decode(Array(words[3][2]).span), mac.count == ChainEnd.macLength
        else {
            throw .keyFile(path: path, reason: "it is damaged, or the server did not write it")
        }
        chain = String(decoding: words[0][1], as: UTF8.self)
        self.pseudonymKey = pseudonymKey
        chainKey = ChainKey(period: UInt64(period), key: key)
        periodStart = start
        end = ChainEnd(sequence: UInt64(sequence), mac: mac, period: UInt64(period))
    }

    /// Saves the key of a new chain, in place of a former one if there is one, and deletes the former chain's end.
    package func install(_ path: String) throws(AuditError) {
        // First, as the end of the former chain could be taken for this one's.
        _ = unsafe unlink(Self.headPath(beside: path))
        try save(path)
    }

    /// Replaces or creates the file.
    func save(_ path: String) throws(AuditError) {
        var text = bytes
        defer { SecretKey.wipe(&text) }
        try KeyFile.replace(path, text)
    }

    /// The text of the file, which the caller wipes.
    private var bytes: [UInt8] {
        var text: [UInt8] = []
        // Enough that the array does not grow, which would leave copies in memory.
        text.reserveCapacity(1024)
        text += Self.heading.utf8
        text += "chain \(chain)\npseudonyms ".utf8
        pseudonymKey.withBytes { Base64URL.append($0, to: &text) }
        text += "\nperiod \(chainKey.period) \(periodStart) ".utf8
        chainKey.key.withBytes { Base64URL.append($0, to: &text) }
        text += "\nhead \(end.sequence) ".utf8
        Base64URL.append(end.mac.span, to: &text)
        text.append(UInt8(ascii: "\n"))
        return text
    }
}

/// The key from which the other keys of an audit log are made, one after the other.
///
/// It verifies the log and could rewrite all of it, so it is kept elsewhere than on the server.
package struct AuditFirstKey: Sendable {
    private let key: SecretKey

    package static func random() -> AuditFirstKey { AuditFirstKey(key: .random()) }

    /// The key of the first period.
    func chainKey() -> ChainKey {
        ChainKey(period: 0, key: ChainKey.derive(key, "token-cache audit: chain"))
    }

    /// The key of users' and sessions' pseudonyms.
    package func pseudonymKey() -> SecretKey {
        ChainKey.derive(key, "token-cache audit: pseudonyms")
    }

    /// The name of the chain in the log, which is not secret.
    func chainName() -> String {
        ChainKey.derive(key, "token-cache audit: name").withBytes { Base64URL.encode($0.extracting(..<16)) }
    }

    // MARK: - File

    private static let heading = """
        # The first key of an audit log of token-cache: verifies it, and could rewrite it.
        # Keep this file where the log is verified, and not on the server.

        """
    private static let word = "first-key "

    /// Writes the key to a new file (mode 0600).
    package func save(to path: String) throws(AuditError) {
        var text = Array((Self.heading + Self.word).utf8)
        defer { SecretKey.wipe(&text) }
        text.reserveCapacity(text.count + Base64URL.length(of: SecretKey.length) + 1)
        key.withBytes { Base64URL.append($0, to: &text) }
        text.append(UInt8(ascii: "\n"))
        try KeyFile.create(path, text)
    }

    package init(contentsOf path: String) throws(AuditError) {
        guard var lines = try KeyFile.lines(of: path) else {
            throw .keyFile(path: path, reason: "there is no such file")
        }
        defer { for index in lines.indices { SecretKey.wipe(&lines[index]) } }
        guard lines.count == 1, lines[0].starts(with: Self.word.utf8),
            let key = KeyFile.key(lines[0].dropFirst(Self.word.utf8.count))
        else {
            throw .keyFile(path: path, reason: "it is not a file that token-cache audit key has made")
        }
        self.key = key
    }

    private init(key: SecretKey) {
        self.key = key
    }
}

/// The key of one period of the chain.
///
/// The scheme is that of Schneier and Kelsey ("Secure Audit Logs to Support Computer Forensics", 1999), which journald's
/// sealing follows too: each key gives the next one by a one-way function and is then destroyed. So nobody can make or
/// change a line of an earlier period with what is found on the machine, while the first key leads to all of them.
struct ChainKey: Sendable {
    /// From 0.
    let period: UInt64
    let key: SecretKey

    /// Makes the lines' MACs, with a key that does not lead to the next period's.
    func lineHash() -> KeyedHash {
        KeyedHash(Self.derive(key, "token-cache audit: lines"))
    }

    func next() -> ChainKey {
        ChainKey(period: period + 1, key: Self.derive(key, "token-cache audit: next period"))
    }

    /// The key of a later period; this one for an earlier period.
    func advanced(to period: UInt64) -> ChainKey {
        var key = self
        while key.period < period { key = key.next() }
        return key
    }

    /// Derives a key that does not lead back to the given one (NIST SP 800-108, with HMAC for a single block).
    static func derive(_ key: SecretKey, _ purpose: String) -> SecretKey {
        let purpose = Array(purpose.utf8)
        var bytes = KeyedHash(key).mac(of: purpose.span)
        defer { SecretKey.wipe(&bytes) }
        return SecretKey(bytes.span)
    }
}

/// Files with keys: short texts that only their owner may read.
enum KeyFile {
    /// In bytes; longer than any of them.
    private static let sizeLimit = 1 << 16

    /// The lines without comments; nil if there is no such file.
    static func lines(of path: String) throws(AuditError) -> [[UInt8]]? {
        var (bytes, status): ([UInt8], FileStatus)
        do {
            (bytes, status) = try BlockingIO.contents(ofFile: path, limit: sizeLimit)
        } catch {
            if error.code == ENOENT { return nil }
            throw .file(path: path, error)
        }
        defer { SecretKey.wipe(&bytes) }
        guard !status.isOpenToOthers else {
            throw .keyFileMode(path: path, mode: UInt32(status.mode & 0o777))
        }
        let lines = bytes.withoutByteOrderMark.split { $0 == UInt8(ascii: "\n") || $0 == UInt8(ascii: "\r") }
        return lines.map(Array.init).filter { $0.first != UInt8(ascii: "#") }
    }

    /// Writes a file that must not exist.
    static func create(_ path: String, _ text: [UInt8]) throws(AuditError) {
        do throws(SystemError) {
            let file = try FileDescriptor(opening: path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode: 0o600)
            do {
                try BlockingIO.write(text, to: file.number)
                try BlockingIO.synchronize(file.number)
                file.adoptOwner(of: Path.folder(of: path))
                try Folder.synchronize(Path.folder(of: path))
            } catch {
                _ = unsafe unlink(path)
                throw error
            }
        } catch {
            if error.code == EEXIST { throw .keyFileExists(path: path) }
            throw .file(path: path, error)
        }
    }

    /// Replaces or creates a file; whatever happens, the former or the new text is there.
    ///
    /// The former text is overwritten afterwards, as a file that is only removed often stays readable on its disk.
    static func replace(_ path: String, _ text: [UInt8]) throws(AuditError) {
        do {
            let former = try? FileDescriptor(opening: path, O_WRONLY | O_NOFOLLOW)
            try FileReplacement.replace(path, with: text)
            if let former {
                try? BlockingIO.write([UInt8](repeating: 0x23, count: text.count)[...], to: former.number, at: 0)
                try? BlockingIO.synchronizeData(former.number)
            }
        } catch {
            throw .file(path: path, error)
        }
    }

    /// A key in base64url.
    static func key(_ text: ArraySlice<UInt8>) -> SecretKey? {
        guard var bytes = Base64URL.decode(text.span) else { return nil }
        defer { SecretKey.wipe(&bytes) }
        return bytes.count == SecretKey.length ? SecretKey(bytes.span) : nil
    }
}

/// The file with the chain's end, written again with every line, so that the next start notices if the log has lost lines at its
/// end.
///
/// It is not synced: after a power cut it may be older than the log. It contains no secret. Used by one thread at a time.
struct HeadFile: ~Copyable, Sendable {
    private let descriptor: FileDescriptor

    init(_ path: String) throws(AuditError) {
        do {
            descriptor = try FileDescriptor(openingOrCreating: path)
        } catch {
            throw .file(path: path, error)
        }
    }

    /// Nil if the file is new or damaged.
    func load() -> ChainEnd? {
        let bytes = (try? BlockingIO.read(from: descriptor.number, at: 0, count: 128)) ?? []
        let words = bytes.prefix { $0 != UInt8(ascii: "\n") }.split(separator: UInt8(ascii: " "))
        guard words.count == 3, let sequence = UInt64(String(decoding: words[0], as: UTF8.self)),
            let period = UInt64(String(decoding: words[1], as: UTF8.self)),
            let mac = Base64URL.decode(Array(words[2]).span), mac.count == ChainEnd.macLength
        else { return nil }
        let end = ChainEnd(sequence: sequence, mac: mac, period: period)
        return end.isPossible ? end : nil
    }

    /// A failure is ignored: its only consequence is that a start may not notice missing lines.
    func save(_ end: ChainEnd) {
        let text = Array("\(end.sequence) \(end.period) \(Base64URL.encode(end.mac.span))\n".utf8)
        try? BlockingIO.write(text[...], to: descriptor.number, at: 0)
    }
}
