internal import EventLoop
internal import System

/// The memory budget of all commands together: large requests and replies wait until the budget has room for them.
///
/// Counts the bytes of JSON; the decoded values take about four times as much for a while.
///
/// Belongs to its loop's thread.
final class CommandBudget: @unchecked Sendable {
    // Unchecked: only tasks on the loop access it.

    /// A share of the budget, released when this value is destroyed.
    struct Share: ~Copyable {
        private let budget: CommandBudget
        private let bytes: Int

        fileprivate init(_ bytes: Int, of budget: CommandBudget) {
            budget.taken += bytes
            self.budget = budget
            self.bytes = bytes
        }

        deinit {
            budget.taken -= bytes
        }
    }

    private let limit: Int
    private var taken = 0
    /// The numbers of the waiting requests, in the order of their arrival.
    private var waiting: [Int] = []
    private var lastNumber = 0

    /// How long to wait before checking for room again.
    private static let pause = Nanoseconds(.milliseconds(10))

    /// - Parameter limit: The size of the budget in bytes.
    init(limit: Int) {
        self.limit = limit
    }

    /// Waits for a share; nil when the loop is draining.
    ///
    /// - Parameters:
    ///   - bytes: The size of the share; reduced to the whole budget if it is larger.
    ///   - loop: The calling task's loop.
    func share(_ bytes: Int, on loop: EventLoop) async -> Share? {
        let bytes = min(bytes, limit)
        lastNumber += 1
        let number = lastNumber
        waiting.append(number)
        defer { waiting.removeAll { $0 == number } }
        while waiting.first != number || taken + bytes > limit {
            if loop.isDraining { return nil }
            await loop.sleep(until: loop.now + Self.pause)
        }
        return Share(bytes, of: self)
    }
}
