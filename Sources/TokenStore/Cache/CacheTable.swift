/// One shard of the cache: a hash table of entries that leave when there is no room, those first that were not asked for
/// since they were last looked at (the clock algorithm).
///
/// Under its shard's lock.
struct CacheTable: ~Copyable {
    private struct Entry {
        var hash: UInt64 = 0
        /// The id, and behind it the answer; empty in a free place.
        var bytes: [UInt8] = []
        var idLength = 0
        var deadline: Int64 = 0
        /// It was asked for since the hand came by.
        var isUsed = false
    }

    /// Bytes that an entry takes beside its own: its place here and in the table, and the allocation's head.
    private static let overhead = 128

    /// Counts the writes that began or ended.
    var version: UInt64 = 0
    /// Writes under way.
    var writers = 0
    private(set) var hits = 0
    private(set) var misses = 0
    private(set) var count = 0
    private(set) var bytes = 0

    private let limit: Int
    private var entries: [Entry] = []
    private var freePlaces: [Int32] = []
    /// Places of entries by hash, found by going on from there to the first free one, which is -1.
    ///
    /// A power of two long, and never more than half full.
    private var table: [Int32] = []
    private var hand = 0

    init(limit: Int) {
        self.limit = limit
    }

    mutating func find(_ id: Span<UInt8>, _ hash: UInt64, at now: Int64, _ body: (Span<UInt8>) -> Void) -> Bool {
        guard let slot = slot(of: hash) else {
            misses += 1
            return false
        }
        let place = Int(table[slot])
        guard entries[place].idLength == id.count, entries[place].deadline > now, Self.begins(entries[place].bytes, id)
        else {
            misses += 1
            return false
        }
        hits += 1
        entries[place].isUsed = true
        let bytes = entries[place].bytes
        body(bytes.span.extracting(droppingFirst: id.count))
        return true
    }

    private static func begins(_ bytes: borrowing [UInt8], _ id: Span<UInt8>) -> Bool {
        for index in id.indices where bytes[index] != id[index] { return false }
        return true
    }

    mutating func insert(_ answer: Span<UInt8>, _ id: Span<UInt8>, _ hash: UInt64, until deadline: Int64) {
        remove(hash)
        let cost = id.count + answer.count + Self.overhead
        // One large answer is not worth all the small ones.
        guard cost <= limit / 8 else { return }
        while bytes + cost > limit { evictOne() }
        var kept: [UInt8] = []
        kept.reserveCapacity(id.count + answer.count)
        kept.append(span: id)
        kept.append(span: answer)
        let entry = Entry(hash: hash, bytes: kept, idLength: id.count, deadline: deadline)
        let place: Int
        if let free = freePlaces.popLast() {
            place = Int(free)
            entries[place] = entry
        } else {
            place = entries.count
            entries.append(entry)
        }
        count += 1
        bytes += cost
        if table.count < 2 * count { rebuild(4 * count) } else { link(place) }
    }

    /// Takes an entry out; does nothing when there is none.
    mutating func remove(_ hash: UInt64) {
        guard let slot = slot(of: hash) else { return }
        let place = Int(table[slot])
        unlink(slot)
        clear(place)
    }

    mutating func removeAll() {
        for place in entries.indices where !entries[place].bytes.isEmpty { clear(place) }
        for slot in table.indices { table[slot] = -1 }
    }

    private mutating func clear(_ place: Int) {
        bytes -= entries[place].bytes.count + Self.overhead
        count -= 1
        SecretKey.wipe(&entries[place].bytes)
        entries[place] = Entry()
        freePlaces.append(Int32(place))
    }

    private mutating func evictOne() {
        while true {
            hand = hand + 1 < entries.count ? hand + 1 : 0
            if entries[hand].bytes.isEmpty { continue }
            if !entries[hand].isUsed {
                remove(entries[hand].hash)
                return
            }
            entries[hand].isUsed = false
        }
    }

    // MARK: - The table

    private func start(_ hash: UInt64) -> Int {
        Int(truncatingIfNeeded: hash) & (table.count - 1)
    }

    private func slot(of hash: UInt64) -> Int? {
        guard !table.isEmpty else { return nil }
        var slot = start(hash)
        while table[slot] >= 0 {
            if entries[Int(table[slot])].hash == hash { return slot }
            slot = (slot + 1) & (table.count - 1)
        }
        return nil
    }

    private mutating func link(_ place: Int) {
        var slot = start(entries[place].hash)
        while table[slot] >= 0 { slot = (slot + 1) & (table.count - 1) }
        table[slot] = Int32(place)
    }

    /// Frees a slot, and has those behind it move up that could not be found past it any more.
    private mutating func unlink(_ freed: Int) {
        var hole = freed
        var slot = (freed + 1) & (table.count - 1)
        while table[slot] >= 0 {
            let home = start(entries[Int(table[slot])].hash)
            // Whether the hole lies on the way from its home to where it is.
            if (slot - home) & (table.count - 1) >= (slot - hole) & (table.count - 1) {
                table[hole] = table[slot]
                hole = slot
            }
            slot = (slot + 1) & (table.count - 1)
        }
        table[hole] = -1
    }

    private mutating func rebuild(_ least: Int) {
        var size = 64
        while size < least { size *= 2 }
        table = [Int32](repeating: -1, count: size)
        for place in entries.indices where !entries[place].bytes.isEmpty { link(place) }
    }
}
