package import EventLoop

/// Serves operators and their tools, separately from the clients' connections.
///
/// `Server` knows the administration only by this protocol, so that it does not depend on how the server is administered.
package protocol Administration: Sendable {
    /// The addresses it listens on, for the log: `http://127.0.0.1:9090`.
    var listenerNames: [String] { get }

    /// Warnings about these listeners for the operator, one sentence each; empty when there are none.
    var warnings: [String] { get }

    /// Answers requests until the loop is abandoned, and returns when every request is answered or abandoned.
    ///
    /// - Parameter loop: The calling task's loop, which serves nothing else.
    func serve(on loop: EventLoop) async
}
