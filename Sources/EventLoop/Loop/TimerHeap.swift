internal import System

/// A binary heap of deadlines: reading the earliest is O(1), changes are O(log n).
///
/// Entries are not removed before they are due: the loop then drops those that no longer matter.
struct TimerHeap {
    struct Entry {
        let deadline: MonotonicTime
        let target: Target
    }

    enum Target {
        /// The wait on this descriptor: the one that set the deadline, or a later one of a descriptor with the same number.
        case row(Int)
        /// A task that sleeps, by its place in the loop's table of sleepers.
        case sleeper(Int)
    }

    private var entries: [Entry] = []

    /// `never` if there is no timer.
    var earliest: MonotonicTime { entries.first?.deadline ?? .never }

    var count: Int { entries.count }

    mutating func insert(_ entry: Entry) {
        entries.append(entry)
        var child = entries.count - 1
        while child > 0 {
            let parent = (child - 1) / 2
            guard entries[child].deadline < entries[parent].deadline else { break }
            entries.swapAt(child, parent)
            child = parent
        }
    }

    /// Removes and returns the earliest entry if its deadline has passed.
    mutating func popDue(at now: MonotonicTime) -> Entry? {
        guard let first = entries.first, first.deadline <= now else { return nil }
        let last = entries.removeLast()
        guard !entries.isEmpty else { return first }
        entries[0] = last
        var parent = 0
        while true {
            var smallest = parent
            for child in [2 * parent + 1, 2 * parent + 2]
            where child < entries.count && entries[child].deadline < entries[smallest].deadline {
                smallest = child
            }
            guard smallest != parent else { return first }
            entries.swapAt(parent, smallest)
            parent = smallest
        }
    }
}
