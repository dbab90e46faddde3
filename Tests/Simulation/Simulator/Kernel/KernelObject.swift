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
