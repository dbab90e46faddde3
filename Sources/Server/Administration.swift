package import EventLoop

/// What answers the people and programs that run the server, beside its clients' connections.
///
/// The server knows it only by this protocol, so that clients are served without knowing how the server is administered.
package protocol Administration: Sendable {
    /// Where it listens, for the log: `http://127.0.0.1:9090`.
    var listenerNames: [String] { get }

    /// What an operator should know about these listeners, a sentence each; empty when all is well.
    var warnings: [String] { get }

    /// Answers until the loop is abandoned, and returns when every request is answered or given up.
    ///
    /// - Parameter loop: The loop of the calling task, which serves nothing else.
    func serve(on loop: EventLoop) async
}
