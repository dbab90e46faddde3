import Foundation
import Glibc
import System
import Testing

@testable import EventLoop

@Suite struct TurnTests {
    /// Notes its number with each turn; on its loop's thread.
    private final class Turns: ReadinessHandler, @unchecked Sendable {
        private let number: Int
        private let notes: Notes
        private let work: () -> Void

        init(_ number: Int, _ notes: Notes, work: @escaping () -> Void = {}) {
            self.number = number
            self.notes = notes
            self.work = work
        }

        func wake(_ reason: WakeReason) {
            notes.add(number)
            work()
        }

        func resume() {
            notes.add(number)
            work()
        }
    }

    /// Longer than any part of a turn may go on.
    private static func workLong() {
        usleep(12_000)
    }

    /// Waits until so many notes are there.
    private func collect(_ count: Int, _ notes: Notes, on loop: EventLoop) async throws {
        while notes.all.count < count { try await loop.perform { await Task.yield() } }
    }

    @Test
    func `between two steps of long work others have their turn, and so do handshakes`() async throws {
        try await withLoop { loop in
            let notes = Notes()
            try await loop.perform {
                let usual = Turns(9, notes)
                for number in 1...3 {
                    let long = Turns(number, notes) {
                        Self.workLong()
                        loop.enqueue(usual, for: .usual)
                    }
                    loop.enqueue(long, for: .long)
                    loop.enqueue(Turns(10 + number, notes, work: Self.workLong), for: .handshake)
                }
            }
            try await collect(9, notes, on: loop)
            #expect(notes.all == [1, 11, 9, 2, 12, 9, 3, 13, 9])
        }
    }

    @Test
    func `between two steps of TLS handshakes others have their turn`() async throws {
        let pairs = try (1...3).map { _ in try socketPair() }
        defer { for (server, client) in pairs { for descriptor in [server, client] { close(descriptor) } } }
        try await withLoop { loop in
            let notes = Notes()
            try await loop.perform {
                let usual = Turns(9, notes)
                for number in 1...3 {
                    let id = try loop.register(pairs[number - 1].0)
                    Task(executorPreference: loop) {
                        let all = TLSHandshakes(BufferBudget(limit: 1 << 20))
                        let handshake = TLSHandshake(on: loop, id, until: .never, among: all) {
                            notes.add(number)
                            Self.workLong()
                            loop.enqueue(usual, for: .usual)
                            return nil
                        }
                        _ = try? await handshake.perform()
                    }
                }
            }
            try await collect(6, notes, on: loop)
            #expect(notes.all == [1, 9, 2, 9, 3, 9])
        }
    }

    @Test
    func `events have their part of a turn in which jobs have used up theirs`() async throws {
        // Enough for several looks at the clock, however often the machine interrupts the loop.
        let count = 128
        let pairs = try (0..<count).map { _ in try socketPair() }
        defer { for (_, client) in pairs { close(client) } }
        try await withLoop { loop in
            let turns = Notes()
            let keeper = Keeper()
            try await loop.perform {
                for pair in pairs {
                    let handler = Turns(0, Notes()) { turns.add(Int(loop.now.nanoseconds)) }
                    try keeper.wait(at: pair.0, on: loop, calling: handler)
                }
                for pair in pairs { sendByte(through: pair) }
                for _ in 1...10 { Task(executorPreference: loop) { Self.workLong() } }
            }
            try await collect(count, turns, on: loop)
            try await loop.perform { keeper.end() }
            // More than are delivered between two looks at the clock.
            #expect(Dictionary(turns.all.map { ($0, 1) }, uniquingKeysWith: +).values.max() ?? 0 > 16)
        }
    }

    @Test
    func `a handler that queues again waits for those behind it`() async throws {
        try await withLoop { loop in
            let notes = Notes()
            try await loop.perform {
                final class Again: ReadinessHandler {
                    let loop: EventLoop
                    let notes: Notes
                    let number: Int
                    var left = 3
                    init(_ number: Int, _ notes: Notes, _ loop: EventLoop) {
                        (self.number, self.notes, self.loop) = (number, notes, loop)
                    }
                    func wake(_ reason: WakeReason) {}
                    func resume() {
                        notes.add(number)
                        left -= 1
                        if left > 0 { loop.enqueue(self, for: .usual) }
                    }
                }
                for number in 1...2 { loop.enqueue(Again(number, notes, loop), for: .usual) }
            }
            try await collect(6, notes, on: loop)
            #expect(notes.all == [1, 2, 1, 2, 1, 2])
        }
    }

    @Test
    func `tasks that take long leave queued handlers and events their part of the turn`() async throws {
        let (server, client) = try socketPair()
        defer { close(client) }
        try await withLoop { loop in
            let notes = Notes()
            let waiting = Turns(9, notes)
            // Used on the loop only, where it is also freed.
            let keeper = Keeper()
            try await loop.perform {
                try keeper.wait(at: server, on: loop, calling: waiting)
                sendByte(through: (server, client))
                for number in 1...3 {
                    Task(executorPreference: loop) {
                        notes.add(number)
                        Self.workLong()
                    }
                }
            }
            try await collect(4, notes, on: loop)
            try await loop.perform { keeper.end() }
            // The event is there before the first task ends, and is delivered before the last one begins.
            #expect(notes.all.firstIndex(of: 9) ?? 4 < 3)
            #expect(notes.all.filter { $0 != 9 } == [1, 2, 3])
        }
    }

    @Test
    func `events that are left over are delivered in the next turns, in their order`() async throws {
        let count = 6
        let pairs = try (0..<count).map { _ in try socketPair() }
        defer { for (_, client) in pairs { close(client) } }
        try await withLoop { loop in
            let notes = Notes()
            let keeper = Keeper()
            try await loop.perform {
                for (number, pair) in pairs.enumerated() {
                    let handler = Turns(number, notes) {
                        Self.workLong()
                        loop.noteLongStep()
                        Task(executorPreference: loop) { notes.add(100 + number) }
                    }
                    try keeper.wait(at: pair.0, on: loop, calling: handler)
                }
                for pair in pairs { sendByte(through: pair) }
            }
            try await collect(2 * count, notes, on: loop)
            try await loop.perform { keeper.end() }
            // Each event is followed by the task that it made ready, which would otherwise wait for all events.
            #expect(notes.all == (0..<count).flatMap { [$0, 100 + $0] })
        }
    }

    @Test
    func `the queue gives out in order what was put in, however long it gets`() {
        var queue = TurnQueue<any ReadinessHandler>()
        let notes = Notes()
        var put = 0
        for round in 0..<50 {
            for _ in 0..<(round * 7) {
                queue.append(Turns(put, notes))
                put += 1
            }
            for _ in 0..<min(queue.count, round * 5) { queue.popFirst()?.resume() }
        }
        #expect(queue.count == put - notes.all.count)
        while let next = queue.popFirst() { next.resume() }
        #expect(queue.isEmpty)
        #expect(notes.all == Array(0..<put))
    }
}

/// Waits for events of streams, which it keeps alive between two calls on their loop, where they also have to be freed.
private final class Keeper: @unchecked Sendable {
    /// A stream that an array can hold.
    private final class Box {
        let stream: TCPStream

        init(_ stream: consuming TCPStream) {
            self.stream = stream
        }
    }

    private var boxes: [Box] = []

    func wait(at descriptor: Int32, on loop: EventLoop, calling handler: any ReadinessHandler) throws {
        let box = Box(try TCPStream(FileDescriptor(owning: descriptor), on: loop))
        boxes.append(box)
        var buffer: [UInt8] = []
        _ = try box.stream.receive(into: &buffer, room: 16)
        #expect(box.stream.waitUntilReadable(until: .never, [], calling: handler) == nil)
    }

    func end() { boxes = [] }
}

@Suite struct DescriptorWatchTests {
    @Test func `a watched descriptor is announced until everything is read, and again later`() async throws {
        try await withLoop { loop in
            let bytes = try await loop.perform {
                let (reading, writing) = try socketPair()
                var received: [UInt8] = []
                // One byte a call, so that the second one has to be announced although nothing new has arrived.
                let watch = try DescriptorWatch(reading, on: loop) {
                    var byte: UInt8 = 0
                    if read(reading, &byte, 1) == 1 { received.append(byte) }
                }
                for (text, count) in [("ab", 2), ("c", 3)] {
                    _ = write(writing, text, text.utf8.count)
                    while received.count < count { await loop.sleep(until: .now + Nanoseconds(.milliseconds(1))) }
                }
                withExtendedLifetime(watch) {}
                close(writing)
                return received
            }
            #expect(bytes == Array("abc".utf8))
        }
    }
}

@Suite struct TimerHeapTests {
    @Test
    func `deadlines come out in order, each when it is due`() {
        var heap = TimerHeap()
        let deadlines: [UInt64] = (0..<500).map { ($0 * 7_919) % 503 }
        for deadline in deadlines {
            heap.insert(TimerHeap.Entry(deadline: MonotonicTime(nanoseconds: deadline), target: .row(0)))
        }
        #expect(heap.popDue(at: MonotonicTime(nanoseconds: 0))?.deadline.nanoseconds == 0)
        #expect(heap.popDue(at: MonotonicTime(nanoseconds: 0)) == nil)
        var popped: [UInt64] = [0]
        while let entry = heap.popDue(at: .never) { popped.append(entry.deadline.nanoseconds) }
        #expect(popped == deadlines.sorted())
        #expect(heap.earliest == .never)
    }
}
