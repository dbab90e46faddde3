package import System

extension EventLoop {
    /// Suspends a task of this loop until the deadline, which draining does not shorten.
    package func sleep(until deadline: MonotonicTime) async {
        assertCurrent()
        await Waiter<Void>.suspend { timers.insert(TimerHeap.Entry(deadline: deadline, target: .sleeper($0))) }
    }

    /// Ends the waits whose deadline has passed, as many as the budget allows; the others stay due in the next turn.
    func fireTimers() {
        guard let first = timers.popDue(at: now) else { return }
        let budget = TurnBudget(began: .now)
        var due: TimerHeap.Entry? = first
        while let entry = due {
            switch entry.target {
            case .row(let row): fire(row, scheduled: entry.deadline)
            case .sleeper(let sleeper): sleeper.resume(returning: ())
            }
            due = budget.isSpent ? nil : timers.popDue(at: now)
        }
    }

    private func fire(_ row: Int, scheduled: MonotonicTime) {
        // Not the row's earliest entry: an earlier deadline was set after this one.
        guard registrations[row].timer == scheduled else { return }
        registrations[row].timer = .never
        guard registrations[row].waiter != nil else { return }
        let deadline = registrations[row].deadline
        if deadline <= now {
            wake(row, .timedOut)
        } else if deadline < .never {
            // A wait without a deadline needs no entry, which would stay in the heap for ever.
            registrations[row].timer = deadline
            timers.insert(TimerHeap.Entry(deadline: deadline, target: .row(row)))
        }
    }
}

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
        /// A task that sleeps.
        case sleeper(Waiter<Void>)
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
