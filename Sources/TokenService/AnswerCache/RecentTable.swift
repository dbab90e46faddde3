import Synchronization

/// What a table of recently used things keeps.
protocol RecentEntry: Sendable {
    /// Overwrites secrets that nobody else holds before the table drops the entry.
    mutating func wipe()
}

extension RecentEntry {
    /// Does nothing, which suits entries without secrets, and those that requests may still be using.
    mutating func wipe() {}
}

/// What was used recently, found by hashes, within a limit of bytes; shared by all loops.
///
/// It has 16 parts with a lock each, so that the loops seldom wait for one another.
///
/// Any thread.
final class RecentTable<Entry: RecentEntry>: Sendable {
    /// A class, as a mutex cannot be an array's element.
    private final class Part: Sendable {
        let entries: Mutex<RecentEntries<Entry>>

        init(limit: Int) {
            entries = Mutex(RecentEntries(limit: limit))
        }

        deinit { entries.withLock { $0.removeAll() } }
    }

    private let parts: [Part]
    private static var partCount: Int { 16 }

    /// - Parameter limit: In bytes, those of the tables included; with 0 nothing is kept.
    init(limit: Int) {
        parts = (0..<Self.partCount).map { _ in Part(limit: limit / Self.partCount) }
    }

    private func part(of hash: Int) -> Part { parts[hash >> 32 & (Self.partCount - 1)] }

    /// Finds what `body` takes from the entry with a hash; see `RecentEntries.find`.
    ///
    /// - Parameter body: Must not use the table.
    func find<Found: Sendable>(_ hash: Int, _ body: (Entry) -> Found?) -> Found? {
        part(of: hash).entries.withLock { $0.find(hash, body) }
    }

    /// Keeps an entry; see `RecentEntries.insert`.
    ///
    /// - Parameter entry: Must not use the table.
    func insert(under hash: Int, cost: Int, _ entry: () -> Entry?) {
        part(of: hash).entries.withLock { $0.insert(under: hash, cost: cost, entry) }
    }

    func remove(_ hash: Int) {
        part(of: hash).entries.withLock { $0.remove(hash) }
    }

    func removeAll() {
        for part in parts { part.entries.withLock { $0.removeAll() } }
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

/// A hash table of what was used recently, within a limit of bytes: it evicts entries that were not found for some time (the clock
/// algorithm).
///
/// Used by one thread at a time.
struct RecentEntries<Entry: RecentEntry>: ~Copyable {
    private struct Slot {
        /// Nil in a free slot.
        var entry: Entry?
        /// Whether the entry was found since `hand` last passed it.
        var isUsed = false
        var cost: UInt32 = 0
        var hash = 0
    }

    /// How often something was found, and how often not.
    private(set) var (hits, misses) = (0, 0)
    private(set) var count = 0
    private(set) var bytes = 0

    private let limit: Int
    /// The slots, open-addressed: an entry lies in the first free slot from that of its hash on.
    ///
    /// Their number is a power of two, and at most half of them are taken.
    private var slots: [Slot] = []
    /// Where the search for an entry to evict continues.
    private var hand = 0

    /// - Parameter limit: In bytes; with 0 nothing is kept.
    init(limit: Int) {
        self.limit = limit
    }

    /// Finds what `body` takes from the entry with a hash; nil if there is none, or if `body` returns nil.
    ///
    /// - Parameter body: Compares what was hashed.
    mutating func find<Found>(_ hash: Int, _ body: (Entry) -> Found?) -> Found? {
        guard let index = index(of: hash), let entry = slots[index].entry, let found = body(entry) else {
            misses += 1
            return nil
        }
        hits += 1
        slots[index].isUsed = true
        return found
    }

    /// Keeps an entry in place of the one with the same hash, evicting others if there is no room.
    ///
    /// - Parameter entry: Makes the entry, or returns nil if there is nothing to keep; not called for one that is too large.
    mutating func insert(under hash: Int, cost: Int, _ entry: () -> Entry?) {
        // A large entry would evict too many small ones.
        guard cost <= limit / 8, let entry = entry() else { return }
        let isUsed = index(of: hash).map { slots[$0].isUsed } ?? false
        remove(hash)
        while bytes + cost > limit { evictOne() }
        if slots.count < 2 * (count + 1) { grow() }
        count += 1
        bytes += cost
        place(Slot(entry: entry, isUsed: isUsed, cost: UInt32(cost), hash: hash))
    }

    /// Removes an entry, if there is one.
    mutating func remove(_ hash: Int) {
        guard let index = index(of: hash) else { return }
        clear(index)
        closeGap(index)
    }

    mutating func removeAll() {
        for index in slots.indices where slots[index].entry != nil { clear(index) }
    }

    private mutating func clear(_ index: Int) {
        bytes -= Int(slots[index].cost)
        count -= 1
        slots[index].entry?.wipe()
        slots[index] = Slot()
    }

    private mutating func evictOne() {
        while true {
            hand = (hand + 1) & (slots.count - 1)
            guard slots[hand].entry != nil else { continue }
            if !slots[hand].isUsed {
                remove(slots[hand].hash)
                return
            }
            slots[hand].isUsed = false
        }
    }

    // MARK: - Slots

    private func home(_ hash: Int) -> Int { hash & (slots.count - 1) }

    private func index(of hash: Int) -> Int? {
        guard !slots.isEmpty else { return nil }
        var index = home(hash)
        while slots[index].entry != nil {
            if slots[index].hash == hash { return index }
            index = (index + 1) & (slots.count - 1)
        }
        return nil
    }

    private mutating func place(_ slot: Slot) {
        var index = home(slot.hash)
        while slots[index].entry != nil { index = (index + 1) & (slots.count - 1) }
        slots[index] = slot
    }

    /// Moves up entries behind a freed slot, because a search would end at that slot and not find them.
    private mutating func closeGap(_ freed: Int) {
        var gap = freed
        var index = (freed + 1) & (slots.count - 1)
        while slots[index].entry != nil {
            // Whether the gap lies between the slot of its hash and its own.
            if (index - home(slots[index].hash)) & (slots.count - 1) >= (index - gap) & (slots.count - 1) {
                slots.swapAt(gap, index)
                gap = index
            }
            index = (index + 1) & (slots.count - 1)
        }
    }

    private mutating func grow() {
        let former = slots
        slots = [Slot](repeating: Slot(), count: max(64, 2 * former.count))
        for slot in former where slot.entry != nil { place(slot) }
        hand = 0
    }
}
