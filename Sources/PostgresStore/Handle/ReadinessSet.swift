#if PostgreSQL
import CLinux
import Glibc
import System

/// The sockets that a handle waits for, and a timer: together one descriptor, which is readable when any of them is ready.
///
/// An epoll instance in its level-triggered form (epoll(7)), which reports a socket as long as there is something to read: libpq
/// does not say whether it has read everything. Used by one thread at a time.
@safe final class ReadinessSet {
    private let epoll: FileDescriptor
    private let timer: FileDescriptor
    private var isTimerSet = false

    private static let timerTag = UInt64.max

    init() throws(SystemError) {
        let epoll = epoll_create1(Int32(EPOLL_CLOEXEC))
        guard epoll >= 0 else { throw SystemError.last("epoll_create1") }
        self.epoll = FileDescriptor(owning: epoll)
        let timer = clinux_make_timer()
        guard timer >= 0 else { throw SystemError.last("timerfd_create") }
        self.timer = FileDescriptor(owning: timer)
        try control(EPOLL_CTL_ADD, timer, CLINUX_EPOLLIN, Self.timerTag)
    }

    var descriptor: Int32 { epoll.number }

    /// What is ready now, by the sockets' tags.
    func take() -> (tags: [UInt64], isTimeUp: Bool) {
        var (tags, isTimeUp) = ([UInt64](), false)
        let most = 16
        // epoll_event imports as a type that may hold a pointer; only its 64-bit number is used here.
        unsafe withUnsafeTemporaryAllocation(of: epoll_event.self, capacity: most) { events in
            // Newer C libraries declare that the pointer is never nil.
            guard let start = events.baseAddress else { return }
            let count = unsafe epoll_wait(epoll.number, start, Int32(most), 0)
            for index in 0..<max(0, Int(count)) {
                let tag = unsafe events[index].data.u64
                if tag == Self.timerTag { isTimeUp = true } else { tags.append(tag) }
            }
        }
        if isTimeUp {
            // Makes it unreadable until it is set again.
            clinux_set_timer(timer.number, 0)
            isTimerSet = false
        }
        return (tags, isTimeUp)
    }

    /// Sets the timer to go off once, unless it is set already.
    func setTimer(milliseconds: Int) {
        guard !isTimerSet else { return }
        isTimerSet = true
        clinux_set_timer(timer.number, milliseconds)
    }

    // MARK: - Sockets

    /// - Parameter tag: Not the largest number.
    func add(_ socket: Int32, tag: UInt64) throws(SystemError) {
        try control(EPOLL_CTL_ADD, socket, CLINUX_EPOLLIN, tag)
    }

    /// Changes whether the socket is also reported when it can be written to.
    func change(_ socket: Int32, tag: UInt64, isForWriting: Bool) throws(SystemError) {
        try control(EPOLL_CTL_MOD, socket, isForWriting ? CLINUX_EPOLLIN | CLINUX_EPOLLOUT : CLINUX_EPOLLIN, tag)
    }

    /// To be called before the socket is closed.
    func remove(_ socket: Int32) {
        try? control(EPOLL_CTL_DEL, socket, 0, 0)
    }

    private func control(
        _ operation: Int32, _ descriptor: Int32, _ events: UInt32, _ tag: UInt64
    ) throws(SystemError) {
        var event = unsafe epoll_event()
        unsafe event.events = events
        unsafe event.data.u64 = tag
        guard unsafe epoll_ctl(epoll.number, operation, descriptor, &event) == 0 else {
            throw SystemError.last("epoll_ctl")
        }
    }
}
#endif
