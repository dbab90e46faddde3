internal import Synchronization

/// How long one part of a turn may go on before others have theirs.
///
/// A turn has five parts: jobs, handlers that go on from the turn before, long work, events and timers. Whatever clients ask
/// for, a turn takes no longer than five budgets and the longest single step in each, so that the clock, new connections,
/// other clients and whoever watches over the loop are never kept waiting for long.
package struct TurnBudget {
    private let end: MonotonicTime

    package init(_ part: TurnPart = .usual, began: MonotonicTime) {
        end = began + (part == .usual ? Self.usual : Self.long)
    }

    // The one is several times the other, so that a loop that has more long work than it can do spends most of its time on
    // new connections and short requests. Otherwise these could not keep up where there are many of them as well.
    private static let usual = Nanoseconds(.milliseconds(8))
    private static let long = Nanoseconds(.milliseconds(2))

    /// Looks at the clock.
    package var isSpent: Bool { MonotonicTime.now >= end }
}

/// Which part of a turn a handler goes on in.
package enum TurnPart: Sendable {
    /// For steps as short as those of most requests.
    case usual
    /// For steps of a millisecond or so.
    ///
    /// In each turn at least one of them, and further ones only within a budget of their own: any number of clients that ask
    /// for long work wait for one another, and the others hardly for them.
    case long
}

extension EventLoop {
    /// Has a handler's `takeTurn` called on this loop, after those that are queued already.
    ///
    /// On the loop's thread.
    package func enqueue(_ handler: any ReadinessHandler, for part: TurnPart) {
        assertCurrent()
        switch part {
        case .usual: queue.append(handler)
        case .long: longQueue.append(handler)
        }
        hasQueued.store(true, ordering: .relaxed)
    }

    /// Says that the current step has taken longer than most, for the turn's budget.
    ///
    /// On the loop's thread.
    package func noteLongStep() {
        hasWorkedLong.store(true, ordering: .relaxed)
    }

    func takeHasWorkedLong() -> Bool {
        guard hasWorkedLong.load(ordering: .relaxed) else { return false }
        hasWorkedLong.store(false, ordering: .relaxed)
        return true
    }

    /// Has queued handlers go on, as many as the time allows.
    func runQueues() {
        if !queue.isEmpty {
            let budget = TurnBudget(began: .now)
            // Those that queue again wait for the next turn.
            var left = queue.count
            repeat {
                queue.popFirst()?.takeTurn()
                left -= 1
            } while left > 0 && !budget.isSpent
        }
        if !longQueue.isEmpty {
            let budget = TurnBudget(.long, began: .now)
            repeat { longQueue.popFirst()?.takeTurn() } while !longQueue.isEmpty && !budget.isSpent
        }
        hasQueued.store(!queue.isEmpty || !longQueue.isEmpty, ordering: .relaxed)
    }
}
