internal import Synchronization

/// The numbers of seals that a database has granted to this process, in blocks of `SealCounts.step`.
///
/// No other process is granted the same, so no two seals of a key have the same number, although many processes seal. The next
/// block is asked for when half of one is used.
///
/// Any thread takes; one thread grants.
package final class GrantedSeals: Sendable {
    private static let step = SealCounts.step

    /// Numbers of all blocks so far, and how many of them are taken.
    private let granted = Atomic<Int64>(0)
    private let taken = Atomic<Int64>(0)
    /// The number before the first one of a block, for every second block; at most two have numbers left.
    private let evenStart = Atomic<Int64>(0)
    private let oddStart = Atomic<Int64>(0)
    private let request: @Sendable () -> Void

    /// - Parameter request: Has another block granted, soon.
    init(requesting request: @escaping @Sendable () -> Void) {
        self.request = request
    }

    /// - Parameter block: From 0.
    private func start(of block: Int64) -> Int64 {
        block & 1 == 0 ? evenStart.load(ordering: .relaxed) : oddStart.load(ordering: .relaxed)
    }

    /// The next number; nil if there is none until a block is granted.
    func take() -> Int64? {
        var place = taken.load(ordering: .acquiring)
        while place < granted.load(ordering: .acquiring) {
            // Read before the place is taken: the block's successor but one, whose start takes its place, is granted only when
            // all of the block is taken, and then the exchange fails.
            let start = start(of: place / Self.step)
            let outcome = taken.compareExchange(
                expected: place, desired: place + 1, ordering: .acquiringAndReleasing)
            if outcome.exchanged {
                if place % Self.step == Self.step / 2 { request() }
                return start + place % Self.step + 1
            }
            place = outcome.original
        }
        request()
        return nil
    }

    /// Whether another block is to be granted: half of the last one is used.
    package var needsBlock: Bool {
        granted.load(ordering: .relaxed) - taken.load(ordering: .relaxed) < Self.step / 2
    }

    /// How many numbers are left.
    package var left: Int64 { granted.load(ordering: .relaxed) - taken.load(ordering: .relaxed) }

    /// Adds a block; only when `needsBlock`.
    ///
    /// - Parameter number: The last one before the block.
    package func grant(after number: Int64) {
        precondition(needsBlock, "at most two blocks have numbers left")
        let end = granted.load(ordering: .relaxed)
        if (end / Self.step) & 1 == 0 {
            evenStart.store(number, ordering: .relaxed)
        } else {
            oddStart.store(number, ordering: .relaxed)
        }
        granted.store(end + Self.step, ordering: .releasing)
    }

    /// Takes all numbers that are left, to give them back.
    ///
    /// - Returns: For each block, in their order, the last number before those that are left, and the last one of them.
    package func takeRest() -> [(before: Int64, last: Int64)] {
        var place = taken.load(ordering: .acquiring)
        while true {
            let end = granted.load(ordering: .acquiring)
            var rests: [(before: Int64, last: Int64)] = []
            for block in place / Self.step..<(end + Self.step - 1) / Self.step {
                let first = max(place - block * Self.step, 0)
                rests.append((start(of: block) + first, start(of: block) + Self.step))
            }
            let outcome = taken.compareExchange(expected: place, desired: end, ordering: .acquiringAndReleasing)
            if outcome.exchanged { return place < end ? rests : [] }
            place = outcome.original
        }
    }
}
