import EventLoop

@testable import Server

extension World {
    /// Checks what must be so whenever nothing can happen except that time passes.
    func checkAtRest() {
        for client in accepted { client.checker.checkAtRest() }
        guard accepted.allSatisfy({ $0.checker.isIdle && $0.habits.reading != .never }) else { return }
        let bytes = server.budget.takenBytes
        if bytes != 0 { violation("\(bytes) bytes of buffers are counted although all connections are idle") }
    }
}
