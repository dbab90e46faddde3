import Cryptography
import Glibc
import System

/// The file that remembers which users were erased, so that an earlier backup cannot bring them back.
///
/// Each user is recorded as an HMAC under a key at the file's beginning: the HMAC alone reveals nothing, but the file
/// shows whether a guessed user is in it. The file lies beside the key ring, because it must outlive the database:
///
///     key 9c1f...
///     1795000000123456 03ab...
///
/// An erasure begins with a version (see `TokenVersion`) above those of all tokens and sessions that were written
/// before it: a restore keeps what was written after it.
package struct ErasuresFile: Hashable, Sendable {
    /// The file's name beside a key ring of the standard name; otherwise it is a suffix of the ring's name.
    static let standardName = "erasures"

    package let path: String

    /// - Parameters:
    ///   - keyRing: The store's key ring.
    ///   - directory: The data folder, for a key ring that systemd provides, beside which nothing can be written.
    package init(beside keyRing: KeyRingFile, directory: String) {
        let ring = keyRing.isCredential ? "\(directory)/\(KeyRingFile.standardName)" : keyRing.path
        let isStandard = "/\(ring)".hasSuffix("/" + KeyRingFile.standardName)
        path = isStandard ? "\(Path.folder(of: ring))/\(Self.standardName)" : "\(ring).\(Self.standardName)"
    }

    private init(path: String) {
        self.path = path
    }

    /// The files that a restore reads: the one beside the key ring, and one in the data folder.
    ///
    /// A server that has its ring as a credential writes the one in the data folder. Root's commands read the ring at the
    /// credential's source instead, beside which there is no such file.
    ///
    /// - Parameters:
    ///   - keyRing: The store's key ring.
    ///   - directory: The data folder.
    static func followed(byStoreWith keyRing: KeyRingFile, in directory: String) -> [ErasuresFile] {
        let beside = ErasuresFile(beside: keyRing, directory: directory)
        let inFolder = ErasuresFile(path: "\(directory)/\(standardName)")
        return beside == inFolder ? [beside] : [beside, inFolder]
    }

    /// The contents of the files that a restore reads; empty if no user was ever erased.
    package static func load(
        followedByStoreWith keyRing: KeyRingFile, in directory: String
    ) throws(StoreError) -> [Erasures] {
        var erasures: [Erasures] = []
        for file in followed(byStoreWith: keyRing, in: directory) {
            if let found = try file.load() { erasures.append(found) }
        }
        return erasures
    }

    /// How many of the erasures that a store knows of are in no file that can be read.
    package static func missing(of known: Int, byStoreWith keyRing: KeyRingFile, in directory: String) -> Int {
        guard known > 0 else { return 0 }
        let found = try? load(followedByStoreWith: keyRing, in: directory)
        return max(0, known - (found ?? []).reduce(0) { $0 + $1.count })
    }

    private static let heading = """
        # Users that were erased from a token-cache store, so that token-cache restore removes them from older backups again.
        # Keep it with the key ring, apart from the database and its backups.

        """

    /// Bytes that are read at the file's beginning to find the key, and at its end to find the last complete line.
    private static let block = 4_096

    /// Adds an erasure, which is durable when this returns.
    ///
    /// One writer at a time.
    ///
    /// - Parameters:
    ///   - user: The erased user.
    ///   - version: Larger than those of all of the user's rows, and smaller than all later ones.
    package func append(_ user: [UInt8], _ version: TokenVersion) throws(StoreError) {
        do throws(SystemError) {
            // An empty file is replaced, so that this erasure is recorded. A restore refuses one, as it may have had others.
            guard let descriptor = try open(O_RDWR), try FileStatus.read(descriptor.number).size > 0 else {
                let new = Erasures(key: .random())
                let key = new.key.withBytes { key in Hexadecimal.text(key.indices.map { key[$0] }) }
                let text = Self.heading + "key \(key)\n" + line(user, version, new)
                return try FileReplacement.replace(path, with: Array(text.utf8))
            }
            // The whole file is not read, because it may hold many erasures.
            let found = try parse(
                try BlockingIO.read(from: descriptor.number, at: 0, count: Self.block), isHead: true)
            let size = try FileStatus.read(descriptor.number).size
            let start = max(0, size - Self.block)
            let tail = try BlockingIO.read(from: descriptor.number, at: start, count: size - start)
            guard let last = tail.lastIndex(of: UInt8(ascii: "\n")) else { throw Self.damage }
            let end = start + last + 1
            // A line that a crash has cut off was never acknowledged.
            if end < size { try BlockingIO.truncate(descriptor.number, to: end) }
            try BlockingIO.write(ArraySlice(line(user, version, found).utf8), to: descriptor.number, at: end)
            try BlockingIO.synchronize(descriptor.number)
        } catch {
            let advice =
                error.code == EBADMSG
                ? "put a copy of the file in its place" : "make the file writable for the server's user"
            throw .refused(
                """
                the erasure cannot be recorded in \(path) (\(error.call): \(error.reason)), without which a restored backup \
                would bring the user back\(error.fileAdvice(otherwise: advice)), and erase the user again
                """
            )
        }
    }

    /// Reads the erasures; nil if there is no such file.
    package func load() throws(StoreError) -> Erasures? {
        do {
            return try contents().map { (bytes) throws(SystemError) in try parse(bytes) }
        } catch {
            throw .refused(
                "the erasures \(path) cannot be read (\(error.call): \(error.reason)); put a copy of the file there")
        }
    }

    /// Copies the file, durably, over an earlier copy or to where nothing is; false if there is no such file.
    ///
    /// - Parameter sparesOthers: Whether another store's file at the copy's path is no error; false is then returned.
    func copy(to copy: ErasuresFile, sparesOthers: Bool = false) throws(StoreError) -> Bool {
        do throws(SystemError) {
            guard var bytes = try contents() else { return false }
            // The last line may be one that is just being written.
            bytes.removeSubrange((bytes.lastIndex(of: UInt8(ascii: "\n")).map { $0 + 1 } ?? 0)...)
            let former = try copy.contents()
            guard bytes.starts(with: former ?? []) else {
                if sparesOthers { return false }
                throw SystemError(call: "its content", code: EEXIST)
            }
            if former != bytes { try FileReplacement.replace(copy.path, with: bytes) }
            return true
        } catch {
            throw .refused(
                "the erasures \(path) cannot be copied over \(copy.path), unless that is an earlier copy (\(error))")
        }
    }

    private func contents() throws(SystemError) -> [UInt8]? {
        guard let descriptor = try open(O_RDONLY) else { return nil }
        return try BlockingIO.read(
            from: descriptor.number, expecting: FileStatus.read(descriptor.number).size + 1)
    }

    private func open(_ access: Int32) throws(SystemError) -> FileDescriptor? {
        do {
            return try FileDescriptor(opening: path, access | O_NOFOLLOW)
        } catch {
            if error.code == ENOENT { return nil }
            throw error
        }
    }

    /// - Parameter isHead: Whether to read the key only.
    private func parse(_ bytes: [UInt8], isHead: Bool = false) throws(SystemError) -> Erasures {
        var erasures: Erasures?
        var rest = bytes[...]
        // A line without a line feed was cut off by a crash.
        while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
            let line = rest[..<end]
            rest = rest[(end + 1)...]
            guard line.first != UInt8(ascii: "#"), !line.isEmpty else { continue }
            let words = line.split(separator: UInt8(ascii: " "))
            guard words.count == 2, let hash = Hexadecimal.decode(words[1]), hash.count == KeyedHash.length
            else { throw Self.damage }
            let first = String(decoding: words[0], as: UTF8.self)
            if erasures == nil, first == "key" {
                erasures = Erasures(key: SecretKey(hash.span))
                if isHead { break }
            } else if let version = Int64(first), erasures != nil {
                erasures?.add(hash, TokenVersion(rawValue: version))
            } else {
                throw Self.damage
            }
        }
        guard let erasures else { throw Self.damage }
        return erasures
    }

    private static var damage: SystemError { SystemError(call: "its content", code: EBADMSG) }

    private func line(_ user: [UInt8], _ version: TokenVersion, _ erasures: Erasures) -> String {
        "\(version) \(Hexadecimal.text(erasures.hash(user)))\n"
    }
}

/// The erasures of a file.
///
/// Used on one thread.
package final class Erasures {
    private let keyedHash: KeyedHash
    private var versions: [[UInt8]: (version: TokenVersion, isFound: Bool)] = [:]
    /// How many erasures there are, more than one of the same user included.
    package private(set) var count = 0

    fileprivate init(key: SecretKey) {
        keyedHash = KeyedHash(key)
    }

    fileprivate var key: SecretKey { keyedHash.key }

    fileprivate func add(_ hash: [UInt8], _ version: TokenVersion) {
        versions[hash] = (max(versions[hash]?.version ?? version, version), false)
        count += 1
    }

    /// The largest version; nil if there are no erasures.
    package var last: TokenVersion? { versions.values.lazy.map(\.version).max() }

    /// How many users `finds` has found.
    package var foundCount: Int { versions.values.lazy.filter(\.isFound).count }

    fileprivate func hash(_ user: [UInt8]) -> [UInt8] { keyedHash.mac(of: user.span) }

    /// Whether a user was erased after something was written.
    ///
    /// - Parameters:
    ///   - user: The user to whom it belongs.
    ///   - version: The version of the token or session.
    package func finds(_ user: [UInt8], writtenAs version: TokenVersion) -> Bool {
        let hash = hash(user)
        guard let erased = versions[hash]?.version, version < erased else { return false }
        versions[hash] = (erased, true)
        return true
    }
}

extension [Erasures] {
    /// Whether one of the lists says that a user was erased after a row with this version was written.
    package func find(_ user: [UInt8], writtenAs version: TokenVersion) -> Bool {
        contains { $0.finds(user, writtenAs: version) }
    }
}

/// What an erasure removed.
package struct Erasure: Hashable, Codable, Sendable {
    /// Whether there was a token, even an expired one.
    package var hadToken: Bool
    /// How many sessions there were.
    package var sessions: Int

    package init(hadToken: Bool, sessions: Int) {
        self.hadToken = hadToken
        self.sessions = sessions
    }
}

extension KeyRingFile {
    /// Copies the ring and the erasures beside it into a folder, durably and readable for their owner only.
    ///
    /// The copies are named by the newest key. As long as that is the same, a copy keeps keys that were retired, and gets those that
    /// were put back for an earlier backup.
    ///
    /// - Parameters:
    ///   - ring: The ring in use.
    ///   - directory: The data folder.
    /// - Returns: The paths of the copies.
    package func copy(_ ring: KeyRing, into folder: String, directory: String) throws(StoreError) -> [String] {
        guard folder.hasPrefix("/") else { throw .refused("the path of the folder for the keys is not absolute") }
        let erasures = ErasuresFile(beside: self, directory: directory)
        guard !isCredential else {
            throw .refused(
                """
                the key ring \(path) is a credential, and is not copied; copy it where it comes from, such as \
                /etc/credstore/\(Self.credentialName), and the file \(erasures.path), if there is one
                """)
        }
        let name = "\(Self.standardName)-\(ring.newest.number)-\(ring.newest.fingerprint())"
        let copy = KeyRingFile(path: "\(folder)/\(name)", credentials: nil, directory: "")
        do {
            if let found = try copy.load() {
                let new = ring.keys.filter { found.numberedKey($0.number) == nil }
                if !new.isEmpty { try copy.save(KeyRing(index: ring.index, keys: found.keys + new)) }
            } else {
                try copy.saveFirst(ring)
            }
        } catch {
            throw .refused("\(error)")
        }
        let copiedErasures = ErasuresFile(beside: copy, directory: "")
        guard try erasures.copy(to: copiedErasures) else { return [copy.path] }
        var copies = [copy.path, copiedErasures.path]
        // Also beside the copies of earlier rings, with which earlier backups are restored: these must not bring back users who were
        // erased later.
        for other in (Folder.names(in: folder) ?? []).sorted()
        where other.hasPrefix("\(Self.standardName)-") && other != name {
            let earlier = KeyRingFile(path: "\(folder)/\(other)", credentials: nil, directory: "")
            guard (try? earlier.load(like: ring)) != nil else { continue }
            let beside = ErasuresFile(beside: earlier, directory: "")
            if try erasures.copy(to: beside, sparesOthers: true) { copies.append(beside.path) }
        }
        return copies
    }
}
