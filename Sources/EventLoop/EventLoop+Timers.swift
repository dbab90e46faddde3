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

    func fireTimers() {
        while let entry = timers.popDue(at: now) {
            switch entry.target {
            case .registration(let id): fire(id, scheduled: entry.deadline)
            case .sleeper(let place):
                let sleeper = sleepers[place]
                sleepers[place] = nil
                freeSleepers.append(place)
                sleeper?.resume(returning: ())
            }
        }
    }

    private func fire(_ id: RegistrationID, scheduled: MonotonicTime) {
        let row = Int(id.descriptor)
        guard registrations[row].generation == id.generation else { return }
        // A later entry than the row's earliest: the row set a nearer deadline after this one.
        guard registrations[row].timer == scheduled else { return }
        registrations[row].timer = .never
        guard registrations[row].waiter != nil else { return }
        let deadline = registrations[row].deadline
        if deadline <= now {
            wake(row, .timedOut)
        } else {
            registrations[row].timer = deadline
            timers.insert(TimerHeap.Entry(deadline: deadline, target: .registration(id)))
        }
    }
}
