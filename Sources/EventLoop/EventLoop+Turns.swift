import Synchronization
package import System

/// The time that one part of a turn may take before the next part begins.
///
/// The parts are jobs, queued handlers, queued long work, handshakes, events and timers. Whatever clients ask for, a
/// turn takes at most the six budgets plus one step in each, so that timers, new connections, other clients and the
/// watchdog never wait for long.
package struct TurnBudget {
    private let end: MonotonicTime

    package init(_ part: TurnPart = .usual, began: MonotonicTime) {
        end = began + (part == .usual ? Self.usual : Self.long)
    }

    // `usual` is several times `long`: a loop with more long work than it can do must still keep up with new
    // connections and many short requests.
    private static let usual = Nanoseconds(.milliseconds(8))
    private static let long = Nanoseconds(.milliseconds(2))

    /// Whether the time is over; reads the clock.
    package var isSpent: Bool { MonotonicTime.now >= end }
}

/// The part of a turn in which a handler continues.
package enum TurnPart: Sendable {
    /// For steps as short as those of most requests.
    case usual
    /// For steps of a millisecond or so.
    ///
    /// Each turn does at least one such step, and more only while their own budget lasts: however many clients ask for long
    /// work, they wait for one another, and other clients hardly wait for them.
    case long
    /// For steps of TLS handshakes, limited in the same way, because any client can make the server sign.
    case handshake
}

extension EventLoop {
    /// Queues a handler, whose `resume` this loop calls after those that are queued already.
    ///
    /// On the loop's thread.
    package func enqueue(_ handler: any ReadinessHandler, for part: TurnPart) {
        assertCurrent()
        switch part {
        case .usual: queue.append(handler)
        case .long: longQueue.append(handler)
        case .handshake: handshakeQueue.append(handler)
        }
        hasQueued.store(true, ordering: .relaxed)
    }

    /// Notes that the current step takes longer than most: the loop then reads the clock before it delivers the next event.
    ///
    /// On the loop's thread.
    package func noteLongStep() {
        hasWorkedLong.store(true, ordering: .relaxed)
    }

    /// Whether `noteLongStep` was called since the last call of this.
    func takeHasWorkedLong() -> Bool {
        guard hasWorkedLong.load(ordering: .relaxed) else { return false }
        hasWorkedLong.store(false, ordering: .relaxed)
        return true
    }

    /// Calls queued handlers, as many as the budget allows.
    func runQueues() {
        if !queue.isEmpty {
            let budget = TurnBudget(began: .now)
            // Handlers that queue again wait for the next turn.
            var left = queue.count
            repeat {
                queue.popFirst()?.resume()
                left -= 1
            } while left > 0 && !budget.isSpent
        }
        if !longQueue.isEmpty {
            let budget = TurnBudget(.long, began: .now)
            repeat { longQueue.popFirst()?.resume() } while !longQueue.isEmpty && !budget.isSpent
        }
        if !handshakeQueue.isEmpty {
            let budget = TurnBudget(.handshake, began: .now)
            repeat { handshakeQueue.popFirst()?.resume() } while !handshakeQueue.isEmpty && !budget.isSpent
        }
        hasQueued.store(!queue.isEmpty || !longQueue.isEmpty || !handshakeQueue.isEmpty, ordering: .relaxed)
    }
}

/// A queue of jobs or handlers.
struct TurnQueue<Element> {
    private var elements: [Element?] = []
    /// The index of the first element that still waits.
    private var first = 0

    var count: Int { elements.count - first }
    var isEmpty: Bool { first == elements.count }

    mutating func append(_ element: Element) {
        elements.append(element)
    }

    /// Removes and returns the element that has waited longest.
    mutating func popFirst() -> Element? {
        guard !isEmpty else { return nil }
        let element = elements[first].take()
        first += 1
        if isEmpty {
            elements.removeAll(keepingCapacity: elements.count <= 1_024)
            first = 0
        } else if first >= 1_024 && first >= elements.count / 2 {
            // Amortized: each removal moves at most one element.
            elements.removeSubrange(..<first)
            first = 0
        }
        return element
    }
}
