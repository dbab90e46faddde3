internal import Cryptography
internal import HTTP
internal import Synchronization
package import TokenStore

/// The sessions that were used recently and whose they are, in memory and within a limit of bytes.
///
/// A session from here has not ended: the store announces the end of a session before it commits it, and from then on the entry
/// counts no more. For that, each session belongs to one of 4,096 groups by its key, and each group has a version. An entry is
/// valid while its group has the version that it had before the store was read. So the end of a session also has the few other
/// sessions of its group read from the store once more, and no entry has to be searched for.
///
/// Any thread.
package final class SessionCache: Sendable {
    /// A session that was found in the store.
    final class Entry: Sendable {
        let session: UserSession
        let key: SessionKey
        /// When the session was last used, in seconds since 1970.
        let lastUsedAt: Atomic<Int64>
        /// Its names in the audit log; nil without one.
        let auditNames: AuditTrail.Names?
        fileprivate let ticket: Ticket

        init(_ session: UserSession, _ key: SessionKey, _ auditNames: AuditTrail.Names?, _ ticket: Ticket) {
            self.session = session
            self.key = key
            self.auditNames = auditNames
            self.ticket = ticket
            lastUsedAt = Atomic(session.lastUsedAt)
        }
    }

    /// The version of a session's group before the store is read.
    struct Ticket: Sendable {
        fileprivate let group: Int
        fileprivate let version: UInt64
    }

    /// Hits, misses and size of the cache.
    package struct Counts: Sendable {
        package var hits = 0
        package var misses = 0
        package var entries = 0
        package var bytes = 0
    }

    private struct Table {
        var entries: RecentEntries<SessionText, Entry>
        var hits = 0
        var misses = 0
    }

    /// A class, as a mutex cannot be an array's element.
    private final class Shard: Sendable {
        let table: Mutex<Table>

        init(limit: Int) {
            table = Mutex(Table(entries: RecentEntries(limit: limit)))
        }
    }

    private static let groupCount = 4096
    private static let shardCount = 16
    /// The lowest bits count the changes under way, the others are the version.
    private static let oneVersion: UInt64 = 1 << 20
    private static let underWay: UInt64 = oneVersion - 1

    private let groups = InlineArray<4096, Atomic<UInt64>> { _ in Atomic(0) }
    private let shards: [Shard]

    /// - Parameter limit: In bytes; with 0 nothing is kept.
    package init(limit: Int) {
        shards = (0..<Self.shardCount).map { _ in Shard(limit: limit / Self.shardCount) }
    }

    private func shard(of text: SessionText) -> Shard {
        shards[text.number & (Self.shardCount - 1)]
    }

    private static func group(of key: SessionKey) -> Int {
        key.hashValue & (groupCount - 1)
    }

    // MARK: - Reading

    /// A session that is known and has not ended; whether it has expired is for the caller to see.
    func find(_ text: SessionText) -> Entry? {
        let entry = shard(of: text).table.withLock { table -> Entry? in
            let entry = table.entries.find(text)
            if entry == nil { table.misses += 1 } else { table.hits += 1 }
            return entry
        }
        guard let entry, isValid(entry) else { return nil }
        return entry
    }

    /// Whether a session has certainly not ended since it was read from the store.
    func isValid(_ entry: Entry) -> Bool {
        groups[entry.ticket.group].load(ordering: .acquiring) == entry.ticket.version
    }

    /// The ticket to take before a session is read from the store.
    func ticket(for key: SessionKey) -> Ticket {
        let group = Self.group(of: key)
        return Ticket(group: group, version: groups[group].load(ordering: .acquiring))
    }

    /// Keeps an entry, unless a session of its group has ended or is ending since its ticket was taken.
    func insert(_ entry: Entry, under text: SessionText) {
        guard entry.ticket.version & Self.underWay == 0, isValid(entry) else { return }
        // With its place in the table.
        let cost = entry.session.user.count + 400
        shard(of: text).table.withLock { $0.entries.insert(entry, under: text, cost: cost) }
    }

    package var counts: Counts {
        var counts = Counts()
        for shard in shards {
            shard.table.withLock { table in
                counts.hits += table.hits
                counts.misses += table.misses
                counts.entries += table.entries.count
                counts.bytes += table.entries.bytes
            }
        }
        return counts
    }

    // MARK: - The store's reports

    /// The end of these sessions is about to be committed.
    package func willEnd(_ keys: [SessionKey]) {
        for key in keys {
            groups[Self.group(of: key)].add(Self.oneVersion + 1, ordering: .acquiringAndReleasing)
        }
    }

    /// The change that `willEnd` announced is over, with or without success.
    package func didEnd(_ keys: [SessionKey]) {
        for key in keys {
            groups[Self.group(of: key)].add(Self.oneVersion - 1, ordering: .acquiringAndReleasing)
        }
    }

    /// Any session may have ended.
    package func didChangeEverything() {
        for group in 0..<Self.groupCount { groups[group].add(Self.oneVersion, ordering: .acquiringAndReleasing) }
    }
}

/// A session as clients send it: `tcs_` and 43 characters of base64url (RFC 4648, section 5) for 256 random bits.
///
/// Its bytes lie in six words, so that a session is looked up without an allocation. Comparing takes constant time. It has no
/// description that could end up in a log.
struct SessionText: Hashable, Sendable {
    /// Bytes of the text.
    static let length = 47
    /// The prefix of every session.
    static let prefix: StaticString = "tcs_"

    /// Bytes 0 to 39, eight each, and bytes 39 to 46.
    private let words: InlineArray<6, UInt64>

    /// - Returns: Nil for a text that cannot be a session by its length or its beginning.
    init?(_ text: Span<UInt8>) {
        guard text.count == Self.length, text.equals(ByteRange(0, 4), Self.prefix) else { return nil }
        words = InlineArray { index in
            // The loads end with the text: 39 + 8 = 47.
            unsafe text.bytes.unsafeLoadUnaligned(fromByteOffset: min(8 * index, 39), as: UInt64.self)
        }
    }

    static func == (one: SessionText, other: SessionText) -> Bool {
        var difference: UInt64 = 0
        for index in one.words.indices { difference |= one.words[index] ^ other.words[index] }
        return difference == 0
    }

    /// Eight of its random characters are enough, as nobody can choose the sessions of a table: they were all made here.
    func hash(into hasher: inout Hasher) { hasher.combine(words[2]) }

    /// A number that is as random as the session; another one than the hash is made of.
    var number: Int { Int(truncatingIfNeeded: words[4] ^ words[4] >> 8 ^ words[4] >> 16) }
}

/// The random bits of a session, and how clients write them.
package enum SessionSecret {
    /// Bytes of a secret.
    package static let length = 32

    /// The text for a secret.
    package static func text(of secret: Span<UInt8>) -> [UInt8] {
        Array("\(SessionText.prefix)\(Base64URL.encode(secret))".utf8)
    }

    /// The secret of a text; nil if it is not one that `text` has written.
    static func secret(of text: Span<UInt8>) -> [UInt8]? {
        guard text.count == SessionText.length, text.equals(ByteRange(0, 4), SessionText.prefix) else { return nil }
        return Base64URL.decode(text.extracting(droppingFirst: SessionText.prefix.utf8CodeUnitCount))
    }
}
