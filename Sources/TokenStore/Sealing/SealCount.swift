internal import Synchronization

/// How often one key has sealed.
///
/// Any thread.
package final class SealCount: Sendable {
    package let keyNumber: Int
    /// Seals of this process, or of all if they share a store.
    private let taken = Atomic<Int64>(0)
    /// The numbers that this process may use; nil if it is the only one.
    package let granted: GrantedSeals?

    /// - Parameters:
    ///   - keyNumber: The key.
    ///   - request: As for `SealCounts`.
    package init(keyNumber: Int, requesting request: (@Sendable (_ keyNumber: Int) -> Void)? = nil) {
        self.keyNumber = keyNumber
        granted = request.map { request in GrantedSeals { request(keyNumber) } }
    }

    package var value: Int64 { min(taken.load(ordering: .acquiring), SealCounts.limit) }

    package var isExhausted: Bool { value == SealCounts.limit }

    /// Counts a seal that is about to be made.
    ///
    /// - Returns: Its number, from 1, which no other seal of this key has.
    package func take() throws(SealingError) -> Int64 {
        if let granted {
            if let number = granted.take() { return number }
            throw isExhausted ? .exhausted(keyNumber: keyNumber) : .ungranted(keyNumber: keyNumber)
        }
        let number = taken.add(1, ordering: .acquiringAndReleasing).newValue
        guard number <= SealCounts.limit else { throw .exhausted(keyNumber: keyNumber) }
        return number
    }

    /// - Parameter seals: As a store says; more than the limit counts as the limit.
    package func raise(to seals: Int64) {
        _ = taken.max(min(seals, SealCounts.limit), ordering: .acquiringAndReleasing)
    }
}
