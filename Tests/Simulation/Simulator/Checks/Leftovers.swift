import Synchronization

@testable import EventLoop
@testable import Server

/// What must be gone when a server has stopped.
struct Leftovers {
    private weak var worker: Worker?
    private weak var loop: EventLoop?

    /// Checks what the server still counts and holds.
    init(_ server: SimulatedServer) {
        (worker, loop) = (server.worker, server.worker.loop)
        let loop = server.worker.loop
        if server.budget.takenBytes != 0 { violation("\(server.budget.takenBytes) bytes of buffers are still counted") }
        let open = server.worker.connectionCount.load(ordering: .relaxed)
        if open != 0 { violation("\(open) connections are still counted by the loop") }
        let count = server.connections.add() - 1
        if count != 0 { violation("\(count) connections are still counted for the limit") }
        for row in loop.registrations.indices where loop.registrations[row].waiter != nil {
            violation("something waits for descriptor \(row)")
        }
        if loop.timers.count != 0 { violation("\(loop.timers.count) timers are left") }
        if loop.freeSleepers.count != loop.sleepers.count { violation("a task still sleeps") }
        if !loop.queue.isEmpty || !loop.longQueue.isEmpty { violation("a connection still waits for its turn") }
    }

    /// Checks what must be freed, when nothing else refers to the server.
    func check(_ kernel: Kernel) {
        if worker != nil { violation("a connection or an answer still refers to the worker") }
        if loop != nil { violation("something still refers to the loop") }
        if kernel.openDescriptors != 0 { violation("\(kernel.openDescriptors) descriptors are still open") }
    }
}
