import CLinux

/// What a loop wants to know of a descriptor: epoll's bits, and the 64 bits that come back with its events.
struct Watch {
    let events: UInt32
    let tag: UInt64
}

/// Something that a simulated descriptor stands for.
class KernelObject {
    let number: Int32
    /// Set while epoll watches it.
    var watch: Watch?
    /// Whether it is in the ready list.
    var isQueued = false

    init(_ number: Int32) {
        self.number = number
    }

    /// What epoll would report now.
    var readiness: UInt32 { 0 }

    /// The last descriptor was closed.
    func close() {}
}

/// An eventfd.
final class EventCounter: KernelObject {
    var isSignalled = false
    override var readiness: UInt32 { isSignalled ? CLINUX_EPOLLIN : 0 }
}

/// A listening socket, and the connections that it has not accepted yet.
final class ListeningSocket: KernelObject {
    var queue: [SimulatedClient] = []
    override var readiness: UInt32 { queue.isEmpty ? 0 : CLINUX_EPOLLIN }
}

/// An epoll instance: the watched descriptors on which something has happened (epoll(7)), in the order in which it has.
final class ReadyList: KernelObject {
    private var objects: [KernelObject] = []

    var isEmpty: Bool { objects.isEmpty }

    func append(_ object: KernelObject) {
        guard object.watch != nil, !object.isQueued else { return }
        object.isQueued = true
        objects.append(object)
    }

    func remove(_ object: KernelObject) {
        guard object.isQueued else { return }
        object.isQueued = false
        objects.removeAll { $0 === object }
    }

    /// Reports events, and takes edge-triggered ones off the list.
    ///
    /// Sometimes it reports but one of them, as if the others had happened a moment later, and out of order.
    func report(_ events: UnsafeMutableBufferPointer<epoll_event>, _ random: Randomness) -> Int32 {
        guard !objects.isEmpty else { return 0 }
        var taken = objects
        if random.happens(oneIn: 4) {
            let chosen = taken[random.below(taken.count)]
            taken = [chosen]
            objects.removeAll { $0 === chosen }
        } else {
            objects = []
        }
        var count = 0
        for object in taken {
            object.isQueued = false
            guard let watch = object.watch else { continue }
            let happened = object.readiness & (watch.events | CLINUX_EPOLLERR | CLINUX_EPOLLHUP)
            guard happened != 0 else { continue }
            events[count].events = happened
            events[count].data.u64 = watch.tag
            count += 1
            if watch.events & CLINUX_EPOLLET == 0 { append(object) }
        }
        return Int32(count)
    }
}

// The calls that CSimulatedKernel.c passes on: each returns its result, or an error as a negative number.

/// The kernel of the seed that runs; the simulator has one thread.
nonisolated(unsafe) var currentKernel: Kernel?

private var kernel: Kernel {
    guard let currentKernel else { preconditionFailure("a simulated call is made while a seed runs") }
    return currentKernel
}

@_cdecl("simulated_epoll_create")
func epollCreate() -> Int32 { kernel.add { ReadyList($0) } }

@_cdecl("simulated_eventfd")
func eventCounter() -> Int32 { kernel.add { EventCounter($0) } }

@_cdecl("simulated_socket")
func socket() -> Int32 { kernel.add { ListeningSocket($0) } }

@_cdecl("simulated_epoll_ctl")
func epollControl(
    _ epoll: Int32, _ operation: Int32, _ descriptor: Int32, _ event: UnsafeMutablePointer<epoll_event>?
) -> Int32 {
    let (kernel, object) = (kernel, kernel[descriptor])
    guard operation == EPOLL_CTL_ADD, let event else {
        object.watch = nil
        return 0
    }
    return kernel.watch(object, Watch(events: event.pointee.events, tag: event.pointee.data.u64))
}

@_cdecl("simulated_epoll_wait")
func epollWait(
    _ epoll: Int32, _ events: UnsafeMutablePointer<epoll_event>, _ capacity: Int32, _ timeout: Int32
) -> Int32 {
    kernel.wait(UnsafeMutableBufferPointer(start: events, count: Int(capacity)), timeout)
}

@_cdecl("simulated_accept")
func accept(_ listener: Int32) -> Int32 { kernel.accept() }

@_cdecl("simulated_recv")
func receive(_ descriptor: Int32, _ bytes: UnsafeMutableRawPointer, _ count: Int, _ peeks: Int32) -> Int {
    kernel.socket(descriptor).receive(UnsafeMutableRawBufferPointer(start: bytes, count: count), peeks: peeks != 0)
}

@_cdecl("simulated_send")
func send(_ descriptor: Int32, _ bytes: UnsafeRawPointer, _ count: Int) -> Int {
    kernel.socket(descriptor).send(UnsafeRawBufferPointer(start: bytes, count: count))
}

@_cdecl("simulated_write")
func write(_ descriptor: Int32) -> Int {
    let (kernel, object) = (kernel, kernel[descriptor])
    guard let counter = object as? EventCounter else { preconditionFailure("only the loop's eventfd is written to") }
    counter.isSignalled = true
    kernel.noteChange(of: counter)
    return 8
}

@_cdecl("simulated_shutdown")
func shutdown(_ descriptor: Int32, _ direction: Int32) -> Int32 {
    if let socket = kernel[descriptor] as? SimulatedSocket { socket.finishSending() }
    return 0
}

@_cdecl("simulated_setsockopt")
func setOption(_ descriptor: Int32) -> Int32 { kernel.setOption(of: descriptor) }

@_cdecl("simulated_close")
func close(_ descriptor: Int32) -> Int32 { kernel.close(descriptor) }

@_cdecl("simulated_clock")
func clock(_ isWallClock: Int32) -> Int { kernel.readClock(isWallClock: isWallClock != 0) }
