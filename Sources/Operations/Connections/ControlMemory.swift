internal import EventLoop
internal import System

/// The memory that commands take together: large requests and replies wait until there is room for them.
///
/// Counted are the bytes of JSON; what is made of them takes some four times as much meanwhile.
///
/// Belongs to its loop's thread.
final class ControlMemory: @unchecked Sendable {
    // Unchecked: only tasks on the loop touch it.

    /// A share of it, which is given back with this value.
    struct Share: ~Copyable {
        private let memory: ControlMemory
        private let bytes: Int

        fileprivate init(_ bytes: Int, of memory: ControlMemory) {
            memory.taken += bytes
            self.memory = memory
            self.bytes = bytes
        }

        deinit {
            memory.taken -= bytes
        }
    }

    private let limit: Int
    private var taken = 0
    /// Those who wait, in their order.
    private var waiting: [Int] = []
    private var lastNumber = 0

    /// Between two looks whether there is room.
    private static let pause = Nanoseconds(.milliseconds(10))

    /// - Parameter limit: In bytes.
    init(limit: Int) {
        self.limit = limit
    }

    /// Waits for a share; nil when the loop is draining.
    ///
    /// - Parameters:
    ///   - bytes: How much; what is more than all counts as all.
    ///   - loop: The loop of the calling task.
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
