import Glibc
import Synchronization

@testable import EventLoop
@testable import Server

/// What the store has committed, in its order, so that each answer can be compared with it.
///
/// Moments are numbers that grow with everything that happens. For each id there must be one order of all acknowledged writes
/// and of all reads in which each read finds the last write before it, and each happens between its request and its answer: the
/// id is then a single register. The order of commits is known here, so there is nothing to be searched for.
final class Ledger {
    private struct Write {
        let id: Int
        let info: [UInt8]
        var committedAt: Int?
    }

    /// What an id holds from a moment on; no write if it was removed.
    private struct Change {
        let moment: Int
        let write: Int?
        /// When the token expires, in seconds since 1970.
        let deadline: Int64
    }

    private(set) var moment = 0
    private var writes: [Write] = []
    private var changes: [[Change]]
    /// The wall clock, whenever it has changed by a second or more.
    private var wallClock: [(moment: Int, unixTime: Int64)] = []

    init(ids: Int) {
        changes = Array(repeating: [Change(moment: 0, write: nil, deadline: .max)], count: ids)
    }

    func advance() { moment += 1 }

    // MARK: - Writes

    /// - Returns: The number of a write whose token info no other write has.
    func addWrite(id: Int, length: Int) -> Int {
        let info = Array("w\(writes.count).".utf8) + [UInt8](repeating: UInt8(ascii: "x"), count: length)
        writes.append(Write(id: id, info: info))
        return writes.count - 1
    }

    func info(ofWrite write: Int) -> [UInt8] { writes[write].info }
    func committedAt(_ write: Int) -> Int? { writes[write].committedAt }

    /// The number of the write with a token info, which the store was given for an id.
    func write(of info: [UInt8], id: Int) -> Int {
        guard let number = Self.number(in: info[...]), number < writes.count, writes[number].info == info,
            writes[number].id == id
        else { violation("the store gets a token for id \(id) that no client has sent: \(info.count) bytes") }
        return number
    }

    private static func number(in info: ArraySlice<UInt8>) -> Int? {
        guard info.first == UInt8(ascii: "w"), let dot = info.prefix(12).firstIndex(of: UInt8(ascii: ".")) else {
            return nil
        }
        return Int(String(decoding: info[(info.startIndex + 1)..<dot], as: UTF8.self))
    }

    func commit(_ write: Int, deadline: Int64) {
        advance()
        if writes[write].committedAt != nil { violation("write \(write) is committed twice") }
        writes[write].committedAt = moment
        changes[writes[write].id].append(Change(moment: moment, write: write, deadline: deadline))
        advance()
    }

    func remove(id: Int) {
        advance()
        changes[id].append(Change(moment: moment, write: nil, deadline: .max))
        advance()
    }

    // MARK: - Reads

    /// What an id holds now, as the store reads it.
    func current(id: Int, at unixTime: Int64) -> (info: [UInt8], write: Int, deadline: Int64)? {
        guard let change = changes[id].last, let write = change.write, change.deadline > unixTime else { return nil }
        return (writes[write].info, write, change.deadline)
    }

    func wallClockShows(_ unixTime: Int64) {
        if wallClock.last?.unixTime != unixTime { wallClock.append((moment, unixTime)) }
    }

    /// The first moment from `start` on at which a GET could have found the token of a write; nil if there is none.
    func firstMoment(finding write: Int, of id: Int, from start: Int) -> Int? {
        guard let place = changes[id].firstIndex(where: { $0.write == write }) else { return nil }
        let change = changes[id][place]
        let end = place + 1 < changes[id].count ? changes[id][place + 1].moment : Int.max
        guard end > start else { return nil }
        let first = max(start, change.moment)
        let isCurrent = unixTimes(first, min(end, moment)).contains { $0 < change.deadline }
        return isCurrent ? first : nil
    }

    /// The first moment from `start` on at which a GET could have found nothing; nil if there is none.
    func firstMomentFindingNothing(of id: Int, from start: Int) -> Int? {
        for (place, change) in changes[id].enumerated() {
            let end = place + 1 < changes[id].count ? changes[id][place + 1].moment : Int.max
            guard end > start else { continue }
            let first = max(start, change.moment)
            if change.write == nil { return first }
            if change.deadline < .max, unixTimes(first, min(end, moment)).contains(where: { $0 >= change.deadline }) {
                return first
            }
        }
        return nil
    }

    /// What the wall clock has shown between two moments.
    private func unixTimes(_ first: Int, _ last: Int) -> some Sequence<Int64> {
        let place = wallClock.lastIndex { $0.moment <= first } ?? 0
        return wallClock[min(place, wallClock.count)...].lazy.filter { $0.moment <= last }.map(\.unixTime)
    }

    /// The write whose token info the body of an answer has; nil if the body is not exactly that of a stored token.
    func write(inBody body: ArraySlice<UInt8>) -> Int? {
        guard body.starts(with: Self.bodyStart), body.last == UInt8(ascii: "}") else { return nil }
        let info = body.dropFirst(Self.bodyStart.count).dropLast(2)
        guard let number = Self.number(in: info), number < writes.count, writes[number].info.count == info.count,
            writes[number].info.elementsEqual(info)
        else { return nil }
        return number
    }

    private static let bodyStart = Array(#"{"status":"true","token_info":""#.utf8)
}

/// What must be gone when a server has stopped.
struct Leftovers {
    private weak var context: LoopContext?
    private weak var loop: EventLoop?

    /// Checks what the server still counts and holds.
    init(_ server: SimulatedServer) {
        (context, loop) = (server.context, server.context.loop)
        let loop = server.context.loop
        if server.budget.takenBytes != 0 { violation("\(server.budget.takenBytes) bytes of buffers are still counted") }
        let open = server.context.connectionCount.load(ordering: .relaxed)
        if open != 0 { violation("\(open) connections are still counted by the loop") }
        server.connections.setLimit(1)
        if server.connections.add() != true { violation("connections are still counted for the limit") }
        for row in loop.registrations.indices where loop.registrations[row].waiter != nil {
            violation("something waits for descriptor \(row)")
        }
        if loop.timers.count != 0 { violation("\(loop.timers.count) timers are left") }
        if !loop.queue.isEmpty || !loop.longQueue.isEmpty { violation("a connection still waits for its turn") }
    }

    /// Checks what must be freed, when nothing else refers to the server.
    func check(_ kernel: Kernel) {
        if context != nil { violation("a connection or an answer still refers to the context") }
        if loop != nil { violation("something still refers to the loop") }
        if kernel.openDescriptors != 0 { violation("\(kernel.openDescriptors) descriptors are still open") }
    }
}

/// The seed that runs, for its report.
nonisolated(unsafe) var currentSeed: UInt64 = 0

/// Reports what the server has done wrong, with the command that repeats it, and ends the process.
///
/// The server's tasks and descriptors are in the middle of things, so that no further seed can run in this process.
func violation(_ text: String) -> Never {
    report(text)
    _exit(1)
}

/// Prints what is wrong with a seed.
func report(_ text: String) {
    print("Tests/Simulation/run --seed \(currentSeed): \(text)")
    fflush(nil)
}
