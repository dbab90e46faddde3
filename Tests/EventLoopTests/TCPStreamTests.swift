import Foundation
import System
import Testing

@testable import EventLoop

@Suite struct TCPStreamTests {
    @Test
    func `a wait ends at its deadline, and a deadline that moved on does not end it early`() async throws {
        try await withLoop { loop in
            let (server, client) = try socketPair()
            defer { close(client) }
            try await loop.perform {
                let stream = try TCPStream(FileDescriptor(owning: server), on: loop)
                var buffer: [UInt8] = []
                let nothing = try stream.receive(into: &buffer, room: 1)
                #expect(nothing == .wouldBlock)
                for milliseconds in [5, 1, 20] {
                    let deadline = MonotonicTime.now + Nanoseconds(.milliseconds(milliseconds))
                    let outcome = await stream.waitUntilReadable(until: deadline, .idle)
                    #expect(outcome == .timedOut)
                    #expect(MonotonicTime.now >= deadline)
                }
                // The entry for the near deadline is still in the heap when this far one waits.
                let near = MonotonicTime.now + Nanoseconds(.milliseconds(5))
                let far = MonotonicTime.now + Nanoseconds(.milliseconds(30))
                sendByte(through: (server, client))
                let early = await stream.waitUntilReadable(until: near, .idle)
                #expect(early == .ready)
                let one = try stream.receive(into: &buffer, room: 2)
                #expect(one == .received(1))
                let late = await stream.waitUntilReadable(until: far, .idle)
                #expect(late == .timedOut)
                #expect(MonotonicTime.now >= far)
            }
        }
    }

    @Test
    func `the timer of an earlier wait leaves nothing behind in a wait without a deadline`() async throws {
        try await withLoop { loop in
            let (server, client) = try socketPair()
            defer { close(client) }
            try await loop.perform {
                let stream = try TCPStream(FileDescriptor(owning: server), on: loop)
                var buffer: [UInt8] = []
                let nothing = try stream.receive(into: &buffer, room: 1)
                #expect(nothing == .wouldBlock)
                sendByte(through: (server, client))
                let near = MonotonicTime.now + Nanoseconds(.milliseconds(5))
                let early = await stream.waitUntilReadable(until: near, .idle)
                #expect(early == .ready)
                let one = try stream.receive(into: &buffer, room: 2)
                #expect(one == .received(1))
                Task(executorPreference: loop) {
                    await loop.sleep(until: near + Nanoseconds(.milliseconds(1)))
                    _ = write(client, "y", 1)
                }
                let late = await stream.waitUntilReadable(until: .never, .idle)
                #expect(late == .ready)
                #expect(loop.timers.count == 0)
            }
        }
    }

    @Test
    func `a handler is called once for each wait that begins, on the loop's thread`() async throws {
        try await withLoop { loop in
            let (server, client) = try socketPair()
            let reasons = try await loop.perform {
                let recorder = try HandlerRecorder(server, on: loop)
                /// Waits until the handler was called this many times.
                func called(_ count: Int) async { while recorder.reasons.count < count { await Task.yield() } }
                // Until it has been read from, the stream counts as readable, and nothing is waited for.
                #expect(recorder.wait(until: .never) == .ready)
                recorder.receive()
                #expect(recorder.wait(until: .now + Nanoseconds(.milliseconds(5))) == nil)
                await called(1)
                #expect(recorder.wait(until: .never) == nil)
                _ = write(client, "x", 1)
                await called(2)
                recorder.receive()
                #expect(recorder.wait(until: .never) == nil)
                loop.endIdleWaits()
                await called(3)
                #expect(recorder.wait(until: .never) == .draining)
                return recorder.reasons
            }
            #expect(reasons == [.timedOut, .ready, .draining])
            close(client)
        }
    }

    @Test
    func `draining ends idle waits and no others; giving up ends all`() async throws {
        try await withLoop { loop in
            let pairs = try (0..<2).map { _ in try socketPair() }
            let begun = Notes()
            let reasons = try await withThrowingTaskGroup(of: [WakeReason].self) { group in
                for (index, pair) in pairs.enumerated() {
                    let server = pair.0
                    group.addTask {
                        try await loop.perform {
                            let stream = try TCPStream(FileDescriptor(owning: server), on: loop)
                            var buffer: [UInt8] = []
                            _ = try stream.receive(into: &buffer, room: 1)
                            let isIdle = index == 0
                            begun.add(index)
                            let first = await stream.waitUntilReadable(until: .never, isIdle ? .idle : [])
                            // While draining an idle wait does not even begin.
                            let second = await stream.waitUntilReadable(until: .never, .idle)
                            return [first, second]
                        }
                    }
                }
                while begun.all.count < 2 { try await loop.perform { await Task.yield() } }
                loop.endIdleWaits()
                let drained = try await group.next()
                loop.abandon()
                return [drained, try await group.next()]
            }
            #expect(reasons == [[.draining, .draining], [.abandoned, .abandoned]])
            for pair in pairs { close(pair.1) }
        }
    }

    @Test
    func `of the waits with a trait, those that have lasted longest are displaced`() async throws {
        let traits: [WaitTraits] = [.idle] + Array(repeating: .expendable, count: 17) + [.unfinished, []]
        try await withLoop { loop in
            let pairs = try traits.map { _ in try socketPair() }
            try await loop.perform {
                let recorders = try pairs.map { try HandlerRecorder($0.0, on: loop) }
                for (recorder, traits) in zip(recorders, traits) {
                    recorder.receive()
                    #expect(recorder.wait(until: .never, traits) == nil)
                    let began = loop.now
                    while loop.now == began { await Task.yield() }
                }
                func displaced() -> [Int] { recorders.indices.filter { !recorders[$0].reasons.isEmpty } }
                // An eighth of 17.
                #expect(loop.displace(.expendable) == 2)
                #expect(displaced() == [1, 2])
                let budget = BufferBudget(limit: 8)
                #expect(budget.take(6, displacingOn: loop))
                #expect(displaced() == [1, 2])
                #expect(budget.take(2, displacingOn: loop) && !budget.take(1, displacingOn: loop))
                #expect(displaced() == [1, 2, 18])
                #expect([1, 18].map { recorders[$0].reasons } == [[.displaced], [.abandoned]])
                loop.abandon()
                while recorders.contains(where: \.reasons.isEmpty) { await Task.yield() }
            }
            for pair in pairs { close(pair.1) }
        }
    }

    @Test
    func `a descriptor's number can be used again at once without its predecessor's events`() async throws {
        try await withLoop { loop in
            try await loop.perform {
                for _ in 0..<200 {
                    let (server, client) = try socketPair()
                    _ = write(client, "x", 1)
                    // A process that another test starts at this moment may hold the socket for a little longer.
                    shutdown(client, Int32(SHUT_WR))
                    close(client)
                    let stream = try TCPStream(FileDescriptor(owning: server), on: loop)
                    var buffer: [UInt8] = []
                    while try await receive(from: stream, into: &buffer) {}
                    #expect(buffer == Array("x".utf8))
                }
            }
        }
    }

    /// On its first event it closes another descriptor, whose number goes to a new connection.
    private final class Replacer: ReadinessHandler {
        private let number: Int32
        private let spare: Int32
        private let loop: EventLoop
        let id: RegistrationID
        weak var other: Replacer?
        /// The registration of the new connection.
        private(set) var successor: RegistrationID?

        init(_ number: Int32, spare: Int32, on loop: EventLoop) throws {
            (self.number, self.spare, self.loop) = (number, spare, loop)
            id = try loop.register(number)
            loop.markBlocked(.readable, of: id)
            #expect(loop.wait(for: .readable, of: id, until: .never, [], calling: self) == nil)
        }

        func wake(_ reason: WakeReason) {
            guard let other else { return }
            loop.endWait(of: other.id)
            loop.deregister(other.id)
            #expect(dup2(spare, other.number) == other.number)
            successor = try? loop.register(other.number)
        }

        func resume() {}
    }

    @Test
    func `an event that waits while its descriptor is closed does not reach the connection that gets the number`()
        async throws
    {
        try await withLoop { loop in
            try await loop.perform {
                let (first, second, spare) = (try socketPair(), try socketPair(), try socketPair())
                let replacers = try [first.0, second.0].map { try Replacer($0, spare: spare.0, on: loop) }
                (replacers[0].other, replacers[1].other) = (replacers[1], replacers[0])
                for client in [first.1, second.1] { shutdown(client, Int32(SHUT_WR)) }
                // Before the loop waits again, so that both events come at once.
                for server in [first.0, second.0] { awaitArrival(at: server) }
                while replacers.allSatisfy({ $0.successor == nil }) { await Task.yield() }
                let successors = replacers.compactMap(\.successor)
                #expect(successors.count == 1)
                #expect(!successors.contains { loop.isReady(.endOfInput, of: $0) })
                for descriptor in [first.0, first.1, second.0, second.1, spare.0, spare.1] { close(descriptor) }
            }
        }
    }
}
