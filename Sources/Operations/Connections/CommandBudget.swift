internal import Audit
internal import Dispatch
internal import EventLoop
internal import Glibc
internal import System

/// The memory budget of all commands together: large requests and replies wait until the budget has room for them.
///
/// Counts the bytes of JSON; the decoded values take about four times as much for a while.
///
/// Belongs to its loop's thread.
final class CommandBudget: @unchecked Sendable {
    // Unchecked: only tasks on the loop access it.

    /// A share of the budget, released when this value is destroyed.
    struct Share: ~Copyable {
        private let budget: CommandBudget
        private let bytes: Int

        fileprivate init(_ bytes: Int, of budget: CommandBudget) {
            budget.taken += bytes
            self.budget = budget
            self.bytes = bytes
        }

        deinit {
            budget.taken -= bytes
        }
    }

    private let limit: Int
    private var taken = 0
    /// The numbers of the waiting requests, in the order of their arrival.
    private var waiting: [Int] = []
    private var lastNumber = 0

    /// How long to wait before checking for room again.
    private static let pause = Nanoseconds(.milliseconds(10))

    /// - Parameter limit: The size of the budget in bytes.
    init(limit: Int) {
        self.limit = limit
    }

    /// Waits for a share; nil when the loop is draining.
    ///
    /// - Parameters:
    ///   - bytes: The size of the share; reduced to the whole budget if it is larger.
    ///   - loop: The calling task's loop.
    func share(_ bytes: Int, on loop: EventLoop) async -> Share? {
        let bytes = min(bytes, limit)
        lastNumber += 1
        let number = lastNumber
        waiting.append(number)
        defer { waiting.removeAll { $0 == number } }
        while waiting.first != number || taken + bytes > limit {
            if loop.isDraining { return nil }
            await loop.sleep(until: loop.now + Self.pause)
        }
        return Share(bytes, of: self)
    }
}

/// Runs the work of one command, including its JSON, on its own thread.
///
/// Swift has as many shared threads as the machine has processors. Two long commands could occupy all of them, and delay
/// everything else that runs there.
final class CommandThread: TaskExecutor {
    /// A serial queue, which has a thread while it has work.
    private let queue = DispatchQueue(label: "command")

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { [self] in unsafe job.runSynchronously(on: asUnownedTaskExecutor()) }
    }
}

/// A process that connected to the control socket: its user id and process id at that time.
struct Requester: Hashable, Sendable, CustomStringConvertible {
    private let user: UInt32
    private let processID: Int32

    /// The peer of a connection (unix(7), SO_PEERCRED).
    init(connectedTo descriptor: Int32) {
        // The fields of struct ucred, which glibc declares only with _GNU_SOURCE.
        var credentials: (number: Int32, user: UInt32, group: UInt32) = (0, .max, .max)
        var length = socklen_t(MemoryLayout.size(ofValue: credentials))
        _ = unsafe getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &length)
        (user, processID) = (credentials.user, credentials.number)
    }

    var description: String { "uid \(user), process \(processID) over control.sock" }

    /// Who it is in the audit log.
    var actor: AuditEvent.Actor { .operator(uid: user) }
}
