package import System

/// Calls a closure on its loop's thread whenever a descriptor is readable, until the loop is abandoned.
///
/// The descriptor is watched level-triggered: the closure need not read all that there is, as it is called again.
///
/// Belongs to the loop's thread.
package final class DescriptorWatch: ReadinessHandler {
    private let loop: EventLoop
    private let id: RegistrationID
    private let proceed: () -> Void

    /// - Parameters:
    ///   - descriptor: Stays open as long as the loop runs; the caller owns it.
    ///   - loop: The loop of the calling thread.
    ///   - proceed: Called in each turn in which the descriptor is readable; must not wait.
    package init(_ descriptor: Int32, on loop: EventLoop, proceed: @escaping () -> Void) throws(SystemError) {
        self.loop = loop
        self.proceed = proceed
        id = try loop.registerLevelTriggered(descriptor)
        wait()
    }

    package func wake(_ reason: WakeReason) {
        guard case .ready = reason else { return }
        proceed()
        wait()
    }

    package func takeTurn() {}

    private func wait() {
        // The next event says whether there is more.
        loop.markBlocked(.readable, of: id)
        _ = loop.wait(for: .readable, of: id, until: .never, isIdle: false, calling: self)
    }
}
