import CLinux
import CSimulatedKernel
import Glibc

/// What happens in the world while the server is in a system call.
protocol Surroundings: AnyObject {
    /// The loop waits for events: what other threads, clients and time do meanwhile.
    ///
    /// - Returns: When there are events, the time is over, or a signal ends the wait.
    func pass(until deadline: UInt64?)

    /// Another call: sometimes something happens at the same time.
    func interleave()

    /// - Returns: The error of a call that the kernel has no memory for; 0 nearly always.
    func shortage(of client: SimulatedClient?) -> Int32

    func clientIsAccepted(_ client: SimulatedClient)

    /// The server has read the time, which has passed a little meanwhile.
    func clockIsRead()
}

/// The part of the kernel that a loop and its connections use: descriptors, sockets, epoll and the clock.
final class Kernel {
    private var objects: [KernelObject?] = []
    let random: Randomness
    var clock: VirtualClock
    weak var surroundings: (any Surroundings)?
    /// Grows with each wait of the loop that ends.
    var turn = 0
    private(set) var listener: ListeningSocket?
    private var readyList: ReadyList?

    init(_ random: Randomness, _ clock: VirtualClock) {
        self.random = random
        self.clock = clock
    }

    // MARK: - Descriptors

    /// Gives an object the lowest free number, as the kernel does.
    func add(_ make: (Int32) -> KernelObject) -> Int32 {
        let place = objects.firstIndex { $0 == nil } ?? objects.count
        let number = Int32(place) + SIMULATED_DESCRIPTORS_BEGIN
        guard number < SIMULATED_DESCRIPTORS_END else { return -EMFILE }
        let object = make(number)
        if place == objects.count { objects.append(object) } else { objects[place] = object }
        if let list = object as? ReadyList { readyList = list }
        if let socket = object as? ListeningSocket { listener = socket }
        return number
    }

    subscript(descriptor: Int32) -> KernelObject {
        let place = Int(descriptor - SIMULATED_DESCRIPTORS_BEGIN)
        guard place < objects.count, let object = objects[place] else {
            violation("descriptor \(descriptor) is used although it is closed")
        }
        return object
    }

    func socket(_ descriptor: Int32) -> SimulatedSocket {
        guard let socket = self[descriptor] as? SimulatedSocket else { violation("\(descriptor) is no connection") }
        return socket
    }

    func close(_ descriptor: Int32) -> Int32 {
        let object = self[descriptor]
        readyList?.remove(object)
        object.watch = nil
        objects[Int(descriptor - SIMULATED_DESCRIPTORS_BEGIN)] = nil
        object.close()
        if object === listener { listener = nil }
        if object === readyList { readyList = nil }
        return 0
    }

    var openDescriptors: Int { objects.count { $0 != nil } }

    // MARK: - Events

    func watch(_ object: KernelObject, _ watch: Watch) -> Int32 {
        let client = (object as? SimulatedSocket)?.client
        if let client, let error = surroundings?.shortage(of: client), error != 0 { return -error }
        object.watch = watch
        if object.readiness & watch.events != 0 { noteChange(of: object) }
        return 0
    }

    /// Something has happened to an object that its watcher may want to know.
    func noteChange(of object: KernelObject) {
        readyList?.append(object)
    }

    var hasEvents: Bool { readyList?.isEmpty == false }

    func wait(_ events: UnsafeMutableBufferPointer<epoll_event>, _ milliseconds: Int32) -> Int32 {
        let deadline = milliseconds < 0 ? nil : clock.now + UInt64(milliseconds) * 1_000_000
        surroundings?.pass(until: deadline)
        if random.happens(oneIn: 100) { return -EINTR }
        return readyList?.report(events, random) ?? 0
    }

    // MARK: - Sockets

    func accept() -> Int32 {
        surroundings?.interleave()
        guard let listener, !listener.queue.isEmpty else { return -EAGAIN }
        if let error = surroundings?.shortage(of: nil), error != 0 { return -error }
        let client = listener.queue.removeFirst()
        let number = add { SimulatedSocket($0, client, self) }
        if number >= 0 { surroundings?.clientIsAccepted(client) }
        return number
    }

    func setOption(of descriptor: Int32) -> Int32 {
        guard let client = (self[descriptor] as? SimulatedSocket)?.client else { return 0 }
        return -(surroundings?.shortage(of: client) ?? 0)
    }

    // MARK: - Time

    /// Reading the clock takes a moment itself, so that the loop's budgets are used up.
    func readClock(isWallClock: Bool) -> Int {
        clock.now += UInt64(random.below(clock.longestStep))
        surroundings?.clockIsRead()
        return isWallClock ? clock.wall : Int(clock.now)
    }
}

/// The clocks of a seed, in nanoseconds; they show the same second whatever the real time is.
struct VirtualClock {
    /// The monotonic clock.
    var now: UInt64 = 1_000_000_000_000
    /// What the wall clock shows beyond the monotonic one; a jump changes it.
    var wallOffset = 1_800_000_000_000_000_000
    /// The most that passes between two readings.
    var longestStep = 20_000

    var wall: Int { Int(now) + wallOffset }
    /// Seconds since 1970.
    var unixTime: Int64 { Int64(wall / 1_000_000_000) }
}

extension Int {
    /// Nanoseconds of so many seconds.
    static func seconds(_ count: Int) -> Int { count * 1_000_000_000 }
}

extension UInt64 {
    /// Nanoseconds of so many seconds.
    static func seconds(_ count: Int) -> UInt64 { UInt64(count) * 1_000_000_000 }
    /// Nanoseconds of so many milliseconds.
    static func milliseconds(_ count: Int) -> UInt64 { UInt64(count) * 1_000_000 }
}
