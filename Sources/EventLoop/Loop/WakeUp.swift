internal import CLinux
internal import Glibc
internal import System

/// An eventfd that ends the wait of a loop; any thread may signal it.
struct WakeUp: ~Copyable, Sendable {
    let descriptor: FileDescriptor

    init() throws(SystemError) {
        let number = eventfd(0, Int32(EFD_CLOEXEC) | Int32(EFD_NONBLOCK))
        guard number >= 0 else { throw SystemError.last("eventfd") }
        descriptor = FileDescriptor(owning: number)
    }

    func signal() {
        var one: UInt64 = 1
        // It fails only if the counter is full, and then the loop wakes anyway.
        _ = unsafe write(descriptor.number, &one, MemoryLayout<UInt64>.size)
    }
}
