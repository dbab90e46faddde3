package import System

extension EventLoop {
    /// Suspends a task of this loop until the deadline, which draining does not shorten.
    package func sleep(until deadline: MonotonicTime) async {
        assertCurrent()
        await Waiter<Void>.suspend { waiter in
            let place: Int
            if let free = freeSleepers.popLast() {
                place = free
                sleepers[free] = waiter
            } else {
                place = sleepers.count
                sleepers.append(waiter)
            }
            timers.insert(TimerHeap.Entry(deadline: deadline, target: .sleeper(place)))
        }
    }

    /// Ends the waits whose deadline has passed, as many as the budget allows; the others stay due in the next turn.
    func fireTimers() {
        guard let first = timers.popDue(at: now) else { return }
        let budget = TurnBudget(began: .now)
        var due: TimerHeap.Entry? = first
        while let entry = due {
            switch entry.target {
            case .row(let row): fire(row, scheduled: entry.deadline)
            case .sleeper(let place):
                let sleeper = sleepers[place]
                sleepers[place] = nil
                freeSleepers.append(place)
                sleeper?.resume(returning: ())
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
