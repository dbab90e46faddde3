/// Takes the outcome of something that a store was asked for.
///
/// Belongs to the thread that has asked.
package struct Completion<Value> {
    package let take: (Result<Value, StoreError>) -> Void
    private let waiter: (any OutcomeWaiter)?

    /// - Parameters:
    ///   - waiter: Says whether the outcome still matters to somebody; nil if it always matters.
    ///   - take: Takes the outcome.
    package init(for waiter: (any OutcomeWaiter)? = nil, _ take: @escaping (Result<Value, StoreError>) -> Void) {
        (self.waiter, self.take) = (waiter, take)
    }

    /// Whether somebody waits for the outcome.
    ///
    /// What nobody waits for need not be begun; then `take` need not be called.
    package var isAwaited: Bool { waiter?.isWaiting ?? true }

    /// A completion for outcomes of another kind, which are converted for this one.
    package func taking<Other>(_ change: @escaping (Other) -> Value) -> Completion<Other> {
        Completion<Other>(for: waiter) { [take] in take($0.map(change)) }
    }

    package func callAsFunction(_ outcome: Result<Value, StoreError>) { take(outcome) }
}

/// Whoever waits for the outcome of something that a store was asked for, and may stop waiting, such as a client that
/// disconnects.
package protocol OutcomeWaiter: AnyObject {
    var isWaiting: Bool { get }
}
