internal import Synchronization

/// What was used recently, found by hashes, within a limit of bytes; shared by all loops.
///
/// It has 16 parts with a lock each, so that the loops seldom wait for one another.
///
/// Any thread.
final class RecentTable<Entry: Sendable>: Sendable {
    /// A class, as a mutex cannot be an array's element.
    private final class Part: Sendable {
        let entries: Mutex<RecentEntries<UInt64, Entry>>

        init(limit: Int) {
            entries = Mutex(RecentEntries(limit: limit))
        }
    }

    private let parts: [Part]
    private static var partCount: Int { 16 }

    /// - Parameter limit: In bytes; with 0 nothing is kept.
    init(limit: Int) {
        parts = (0..<Self.partCount).map { _ in Part(limit: limit / Self.partCount) }
    }

    private func part(of hash: UInt64) -> Part { parts[Int(hash >> 32) & (Self.partCount - 1)] }

    /// The entry with a hash; the caller compares what was hashed.
    func find(_ hash: UInt64) -> Entry? { part(of: hash).entries.withLock { $0.find(hash) } }

    /// Keeps an entry, which replaces one with the same hash.
    func insert(_ entry: Entry, under hash: UInt64, cost: Int) {
        part(of: hash).entries.withLock { $0.insert(entry, under: hash, cost: cost) }
    }

    var counts: CacheCounts {
        var counts = CacheCounts()
        for part in parts {
            part.entries.withLock { entries in
                counts.hits += entries.hits
                counts.misses += entries.misses
                counts.entries += entries.count
                counts.bytes += entries.bytes
            }
        }
        return counts
    }
}

/// What was used recently, within a limit of bytes.
///
/// Entries are young or old. When there are too many young ones, they become the old ones, and the former old ones are dropped. An
/// old entry that is found becomes young again.
struct RecentEntries<Key: Hashable, Entry> {
    /// In bytes; with 0 nothing is kept.
    let limit: Int
    private var young: [Key: (entry: Entry, cost: Int)] = [:]
    private var old: [Key: (entry: Entry, cost: Int)] = [:]
    private var youngBytes = 0
    private var oldBytes = 0
    /// Keys that were found, and that were not.
    private(set) var (hits, misses) = (0, 0)

    init(limit: Int) {
        self.limit = limit
    }

    var count: Int { young.count + old.count }
    var bytes: Int { youngBytes + oldBytes }

    mutating func find(_ key: Key) -> Entry? {
        hits += 1
        if let found = young[key] { return found.entry }
        guard let found = old.removeValue(forKey: key) else {
            (hits, misses) = (hits - 1, misses + 1)
            return nil
        }
        oldBytes -= found.cost
        insert(found.entry, under: key, cost: found.cost)
        return found.entry
    }

    /// Keeps an entry, which replaces one with the same key.
    mutating func insert(_ entry: Entry, under key: Key, cost: Int) {
        // A large one would take the place of too many others.
        guard cost <= limit / 8 else { return }
        if youngBytes + cost > limit / 2 {
            (old, oldBytes) = (young, youngBytes)
            (young, youngBytes) = ([:], 0)
        }
        if let former = young.updateValue((entry, cost), forKey: key) { youngBytes -= former.cost }
        youngBytes += cost
    }
}
