internal import CLinux
internal import Glibc
internal import System

/// An epoll instance and the one buffer its events are read into.
///
/// Each registration has 64 bits of the caller's choice, which come back with its events.
@safe struct Epoll: ~Copyable {
    /// What happened on a descriptor, as epoll's bit set.
    struct Events: OptionSet {
        let rawValue: UInt32

        static let readable = Events(rawValue: CLINUX_EPOLLIN)
        static let writable = Events(rawValue: CLINUX_EPOLLOUT)
        /// The peer has closed its sending side.
        static let endOfInput = Events(rawValue: CLINUX_EPOLLRDHUP)
        static let error = Events(rawValue: CLINUX_EPOLLERR)
        static let hangUp = Events(rawValue: CLINUX_EPOLLHUP)
        /// Report changes only, not states (epoll(7)).
        static let edgeTriggered = Events(rawValue: CLINUX_EPOLLET)
        /// Wake one of the epoll instances that share the descriptor, not all (epoll_ctl(2)).
        static let exclusive = Events(rawValue: CLINUX_EPOLLEXCLUSIVE)
    }

    private let descriptor: FileDescriptor
    // epoll_event imports as a type that may hold a pointer; only its 64-bit number is used here.
    private var buffer: [epoll_event]

    init(eventsPerWait: Int = 256) throws(SystemError) {
        let number = epoll_create1(Int32(EPOLL_CLOEXEC))
        guard number >= 0 else { throw SystemError.last("epoll_create1") }
        descriptor = FileDescriptor(owning: number)
        unsafe buffer = Array(repeating: unsafe epoll_event(), count: eventsPerWait)
    }

    func add(_ target: Int32, events: Events, tag: UInt64) throws(SystemError) {
        var event = unsafe epoll_event()
        unsafe event.events = events.rawValue
        unsafe event.data.u64 = tag
        guard unsafe epoll_ctl(descriptor.number, EPOLL_CTL_ADD, target, &event) == 0 else {
            throw SystemError.last("epoll_ctl")
        }
    }

    /// Needed only for descriptors that stay open: closing a descriptor removes it too.
    func remove(_ target: Int32) {
        _ = epoll_ctl(descriptor.number, EPOLL_CTL_DEL, target, nil)
    }

    /// Waits for events and returns their number: 0 after the timeout, or after a signal if there are none.
    ///
    /// - Parameter timeoutInMilliseconds: 0 returns at once, -1 waits without limit.
    mutating func wait(timeoutInMilliseconds: Int32) -> Int {
        if let count = waitOnce(timeoutInMilliseconds) { return count }
        // A signal ends the wait even if events have arrived, but for the caller 0 means that there are none.
        return waitOnce(0) ?? 0
    }

    /// Nil after a signal.
    private mutating func waitOnce(_ timeoutInMilliseconds: Int32) -> Int? {
        let capacity = unsafe Int32(buffer.count)
        let count = unsafe buffer.withUnsafeMutableBufferPointer { events in
            unsafe epoll_wait(descriptor.number, events.baseAddress, capacity, timeoutInMilliseconds)
        }
        if count < 0 {
            // Any other error would mean that this type broke its own guarantees about the descriptor and the buffer.
            precondition(errno == EINTR, "epoll_wait failed")
            return nil
        }
        return Int(count)
    }

    /// The event at an index below the last count that `wait` returned.
    func event(at index: Int) -> (events: Events, tag: UInt64) {
        let event = unsafe buffer[index]
        return unsafe (Events(rawValue: event.events), event.data.u64)
    }
}
