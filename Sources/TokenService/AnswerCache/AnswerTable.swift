internal import Cryptography

/// One shard of the answer cache: a hash table that evicts answers which were not asked for recently (the clock
/// algorithm).
///
/// Used under its shard's lock.
struct AnswerTable: ~Copyable {
    /// A slot; 32 bytes, so that two share a line of the processor's cache.
    private struct Slot {
        var hash: UInt64 = 0
        /// The id, and behind it the answer.
        var bytes: [UInt8] = []
        var deadline: Int64 = 0
        var idLength: UInt32 = 0
        var isTaken = false
        /// Whether the entry was found since `hand` last passed it.
        var isUsed = false
    }

    /// Bytes that an entry takes beside its id and its answer: its slot, up to three free ones, and the allocation's header.
    private static let overhead = 160

    /// Grows when a write begins, when it ends, and when everything may have changed.
    var version: UInt64 = 0
    /// The number of writes under way.
    var writers = 0
    private(set) var hits = 0
    private(set) var misses = 0
    private(set) var count = 0
    private(set) var bytes = 0

    private let limit: Int
    /// The slots, open-addressed: an entry lies in the first free slot from that of its hash on.
    ///
    /// Their number is a power of two, and at most half of them are taken.
    private var slots: [Slot] = []
    /// Where the search for an entry to evict continues.
    private var hand = 0

    init(limit: Int) {
        self.limit = limit
    }

    /// Lends the answer to an id; see `AnswerCache.find`.
    mutating func find(
        _ id: Span<UInt8>, _ hash: UInt64, at now: @autoclosure () -> Int64, _ body: (Span<UInt8>) -> Void
    ) -> Bool {
        guard let index = index(of: hash), slots[index].idLength == id.count,
            slots[index].deadline == .max || slots[index].deadline > now(), Self.begins(slots[index].bytes, id)
        else {
            misses += 1
            return false
        }
        hits += 1
        slots[index].isUsed = true
        let bytes = slots[index].bytes
        body(bytes.span.extracting(droppingFirst: id.count))
        return true
    }

    private static func begins(_ bytes: borrowing [UInt8], _ id: Span<UInt8>) -> Bool {
        for index in id.indices where bytes[index] != id[index] { return false }
        return true
    }

    /// Keeps an answer in place of the one with the same hash, evicting others if there is no room.
    mutating func insert(_ answer: Span<UInt8>, _ id: Span<UInt8>, _ hash: UInt64, until deadline: Int64) {
        remove(hash)
        let cost = id.count + answer.count + Self.overhead
        // A large answer would evict too many small ones.
        guard cost <= limit / 8 else { return }
        while bytes + cost > limit { evictOne() }
        var kept: [UInt8] = []
        kept.reserveCapacity(id.count + answer.count)
        kept.append(span: id)
        kept.append(span: answer)
        if slots.count < 2 * (count + 1) { grow() }
        count += 1
        bytes += cost
        place(Slot(hash: hash, bytes: kept, deadline: deadline, idLength: UInt32(id.count), isTaken: true))
    }

    /// Removes an entry, if there is one.
    mutating func remove(_ hash: UInt64) {
        guard let index = index(of: hash) else { return }
        clear(index)
        closeGap(index)
    }

    mutating func removeAll() {
        for index in slots.indices where slots[index].isTaken { clear(index) }
    }

    private mutating func clear(_ index: Int) {
        bytes -= slots[index].bytes.count + Self.overhead
        count -= 1
        SecretKey.wipe(&slots[index].bytes)
        slots[index] = Slot()
    }

    private mutating func evictOne() {
        while true {
            hand = (hand + 1) & (slots.count - 1)
            guard slots[hand].isTaken else { continue }
            if !slots[hand].isUsed {
                remove(slots[hand].hash)
                return
            }
            slots[hand].isUsed = false
        }
    }

    // MARK: - Slots

    private func home(_ hash: UInt64) -> Int {
        Int(truncatingIfNeeded: hash) & (slots.count - 1)
    }

    private func index(of hash: UInt64) -> Int? {
        guard !slots.isEmpty else { return nil }
        var index = home(hash)
        while slots[index].isTaken {
            if slots[index].hash == hash { return index }
            index = (index + 1) & (slots.count - 1)
        }
        return nil
    }

    private mutating func place(_ slot: Slot) {
        var index = home(slot.hash)
        while slots[index].isTaken { index = (index + 1) & (slots.count - 1) }
        slots[index] = slot
    }

    /// Moves entries up that lie behind a freed slot and could no longer be found past it.
    private mutating func closeGap(_ freed: Int) {
        var gap = freed
        var index = (freed + 1) & (slots.count - 1)
        while slots[index].isTaken {
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
        for slot in former where slot.isTaken { place(slot) }
        hand = 0
    }
}
