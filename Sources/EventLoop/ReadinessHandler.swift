/// Somebody whom a loop calls on its thread, where a suspended task would take a kilobyte and some thousand instructions a
/// wait.
package protocol ReadinessHandler: AnyObject {
    /// Called once for each wait that was begun.
    func wake(_ reason: WakeReason)

    /// Called once for each place in a queue of `EventLoop.enqueue`.
    func takeTurn()
}

/// Whom a loop tells that a wait for a descriptor is over.
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
