internal import System

/// The failures of addresses, in a table of fixed size.
///
/// The generic cell rate algorithm (ITU-T I.371, annex A): of a key's failures only a time is kept, at which all of them will
/// have been made up for; each failure moves it on by `interval`. A failure that finds it further than `tolerance` ahead of the
/// present is beyond the rate, and does not count.
///
/// A key belongs to one set of entries. If all of them are in use, the entry with the earliest time is evicted, whose key has
/// the least to make up for: nobody can have a long record forgotten by failing a little from many addresses.
///
/// One thread at a time.
struct FailureTable {
    /// The rate of one kind of key, in nanoseconds.
    struct Rate: Equatable {
        /// The time after which one more failure is within the rate.
        let interval: UInt64
        /// How far ahead of the present an entry's time may be when another failure comes.
        let tolerance: UInt64

        /// - Parameters:
        ///   - rate: The rate of one address.
        ///   - factor: How many times as many failures are within the rate.
        init(_ rate: FailureRate, times factor: UInt64) {
            interval = max(1, Nanoseconds(rate.interval).count / factor)
            tolerance = interval * (UInt64(rate.count) * factor - 1)
        }
    }

    /// What is kept of a key, 16 bytes; free when its time has passed.
    private struct Entry {
        /// The hash of the address; the key of the hash is secret, so two addresses share one by accident only.
        var key: UInt64 = 0
        /// When all failures will have been made up for.
        var time: UInt64 = 0
    }

    /// The entries of a set.
    static let ways = 8

    private let setCount: Int
    /// Empty until the first failure: where nothing fails, the table takes no memory.
    private var entries: [Entry] = []
    /// How many entries were evicted before their time.
    private(set) var evictions = 0

    /// - Parameter setCount: A power of two.
    init(setCount: Int) {
        precondition(setCount > 0 && setCount & (setCount - 1) == 0, "the number of sets is a power of two")
        self.setCount = setCount
    }

    /// The time until another failure of a key is within the rate; nil if it is now.
    func wait(for key: UInt64, _ rate: Rate, at now: UInt64) -> UInt64? {
        guard let index = index(of: key) else { return nil }
        let time = entries[index].time
        return time > now + rate.tolerance ? time - rate.tolerance - now : nil
    }

    /// Counts a failure of a key that is within the rate.
    mutating func count(_ key: UInt64, _ rate: Rate, at now: UInt64) {
        if entries.isEmpty { entries = Array(repeating: Entry(), count: setCount * Self.ways) }
        if let index = index(of: key) {
            entries[index].time = max(entries[index].time, now) + rate.interval
            return
        }
        var earliest = places(of: key).lowerBound
        for index in places(of: key) where entries[index].time < entries[earliest].time { earliest = index }
        if entries[earliest].time > now { evictions += 1 }
        entries[earliest] = Entry(key: key, time: now + rate.interval)
    }

    /// The bytes of all entries.
    var byteCount: Int { entries.capacity * MemoryLayout<Entry>.stride }

    /// Forgets all failures.
    mutating func removeAll() {
        entries = []
    }

    /// How many keys are at the rate, so that another failure would be beyond it.
    func limitedCount(_ rate: Rate, at now: UInt64) -> Int {
        entries.count { $0.time > now + rate.tolerance }
    }

    private func places(of key: UInt64) -> Range<Int> {
        let start = Int(truncatingIfNeeded: key) & (setCount - 1)
        return start * Self.ways..<(start + 1) * Self.ways
    }

    private func index(of key: UInt64) -> Int? {
        entries.isEmpty ? nil : places(of: key).first { entries[$0].key == key }
    }
}
