/// An object that a loop calls on its thread when a wait is over.
///
/// A suspended task would cost a kilobyte and some thousand instructions for each wait.
package protocol ReadinessHandler: AnyObject {
    /// Ends a wait; called once for each wait that has begun.
    func wake(_ reason: WakeReason)

    /// Continues queued work; called once for each `EventLoop.enqueue`.
    func takeTurn()
}

/// A task or handler that waits for a descriptor.
enum ReadinessWaiter {
    case task(Waiter<WakeReason>)
    case handler(any ReadinessHandler)

    func wake(_ reason: WakeReason) {
        switch self {
        case .task(let waiter): waiter.resume(returning: reason)
        case .handler(let handler): handler.wake(reason)
        }
    }
}
